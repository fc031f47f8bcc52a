"""Write self-contained HTML pages: elements, scales, axes, and the frame with its style and script."""
