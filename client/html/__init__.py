"""Pages of HTML that need nothing else: pieces, scales, axes, and the frame with its style and script."""
