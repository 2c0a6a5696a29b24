"""Messages between ranks: activations between pipeline stages, encoder outputs over edges."""
