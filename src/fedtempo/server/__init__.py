"""What the server does: whom it asks, which uploads count, how they are added up, how the model moves."""
