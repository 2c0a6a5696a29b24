"""What no layout of a space can beat, of one module or several, and the divisions of layers that come nearest to it."""
