"""What must stay while code moves: the zoo's numbers, the program's words; and a tool that moves a module."""
