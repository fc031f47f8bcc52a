/* Frames of the protocol, as server/protocol/framing.py and frame_mac.py have them.
 *
 * A reader has a staging buffer of fixed size, and takes one piece of memory for a frame that does not fit: of the size
 * that the limits allow, whatever the frame says, and only until the next frame is asked for. Systems give such a piece
 * its pages when they are written, so what a frame only announces costs nothing, and nothing has to be moved as a frame
 * grows. All of a frame lies there as it came: blobs are copied once at most, and are not aligned. */
#ifndef GPUTUNE_FRAMES_H
#define GPUTUNE_FRAMES_H

#include "files/reading.h"

#include "blake2b.h"

enum {
    MAC_BYTES = 16,
    MAC_KEY_BYTES = 32,
    PREFIX_BYTES = 12,
    MOST_BLOBS = 1024,
    STAGING_BYTES = 64 << 10,
    PIECE_BYTES = 1 << 20 /* of a blob, which has a digest of its own */
};

typedef struct frame_limits { /* as the server names them in its welcome */
    uint64_t frame_bytes, header_bytes, blobs; /* frame_bytes: that this machine can address */
} frame_limits;
extern const frame_limits HANDSHAKE_LIMITS; /* before the other side has proved that it knows the token */

typedef struct frame {
    slice header;
    const slice *blobs;
    size_t blob_count;
} frame;

typedef struct frame_error {
    const char *name, *limit; /* as in errors.py; NULL: the connection itself has failed, and no limit is exceeded */
    uint64_t allowed, got;
    char message[160];
} frame_error;

/* The MACs of the frames of one direction, in their order. */
typedef struct frame_mac {
    blake2b keyed;
    uint64_t number; /* of the next frame */
} frame_mac;
void mac_open(frame_mac *mac, const uint8_t key[MAC_KEY_BYTES]);
/* Takes the same time wherever two MACs differ. */
bool same_mac(const uint8_t one[MAC_BYTES], const uint8_t other[MAC_BYTES]);

/* FRAME_ENDED: the other side has closed the connection between two frames. After this one and FRAME_REFUSED, of which
 * the reader's error says why, no frame follows. */
typedef enum frame_state { FRAME_WHOLE, FRAME_PART, FRAME_ENDED, FRAME_REFUSED } frame_state;

typedef struct frame_reader {
    frame_limits limits; /* this and `mac` may be changed right after a frame was found */
    frame_mac *mac;      /* NULL: frames carry none; else none without one is taken */
    frame_error error;
    uint8_t *memory;               /* what has arrived: in `staging`, or in memory for one frame */
    size_t start, have, needed;    /* in it: the frame's first byte, the end of all bytes; how many the frame needs */
    size_t nbytes, front_bytes;    /* of the frame without its MAC, once its sizes are known, and up to its blobs */
    size_t blob, blob_end, hashed; /* up to this place, in this blob, the digests of pieces are in `hash` */
    blake2b hash;
    bool found, refused;
    slice blobs[MOST_BLOBS];
    uint8_t staging[STAGING_BYTES];
} frame_reader;

void reader_open(frame_reader *reader, const frame_limits *limits);
void reader_close(frame_reader *reader);
/* Where the next bytes belong, and how many may come: some, if next_frame has said FRAME_PART. */
uint8_t *frame_space(frame_reader *reader, size_t *room);
void frame_arrived(frame_reader *reader, size_t nbytes);
/* The next frame, if all of it has arrived; it stays until this is called again. Until its MAC is known to be right,
 * nothing is taken from it but the sizes that say where it ends. */
frame_state next_frame(frame_reader *reader, frame *found);
/* The same, and reads from a descriptor until it has one. It waits as long as the descriptor does (SO_RCVTIMEO). */
frame_state read_frame(frame_reader *reader, int descriptor, frame *found);
/* Writes a frame, with a MAC if the direction has one. The caller ignores SIGPIPE, and one thread writes at a time. A
 * frame that exceeds the limits is not sent and takes no number; after another error the connection is of no use. */
bool write_frame(int descriptor, frame_mac *mac, const frame_limits *limits, const frame *sent, frame_error *error);

#endif
