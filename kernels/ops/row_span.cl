// What MR neighbouring pixels of an output row see of a row of the input: SPAN pixels, the first of them in column `left`.
// Templates define LAST_TILE, the first output pixel of a row's last tile, beside the macros of their window.

#define SPAN ((MR - 1) * SW + (KW - 1) * DW + 1)

// Whether pixel i of a span lies in the map: known when compiling for all but those that the padding can reach.
#define INSIDE(i) (((i) >= PL || left + (i) >= 0) && (LAST_TILE * SW - PL + (i) < WIDTH || left + (i) < WIDTH))

// A vector of pixel i of a span that begins at `line`, so many elements from pixel to pixel: zeros outside of the map.
#define PIXEL(READ, line, i, pitch) (INSIDE(i) ? READ(line, (i) * (pitch)) : (vec)(0.0f))
