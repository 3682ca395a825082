"""Methods that control local work, correct drift or change the server's step, against plain numpy."""
