/* Messages: a frame's header becomes a structure, and the other way round, by the forms of messages.c. */
#ifndef GPUTUNE_CODEC_H
#define GPUTUNE_CODEC_H

#include "messages.h"

#include "frames.h"

typedef struct message {
    message_kind kind;
    uint64_t id;
    const void *row; /* in the pool of the reader */
} message;

/* Reads a message of a kind from `first` to `last`. Whatever a header says, the memory that it takes is at most some
 * dozen times the header. False: the reader's error says why; the id is there if that could be read. */
bool take_message(reader *reader, const frame *frame, message_kind first, message_kind last, message *found);

typedef struct outgoing { /* a message on its way into a frame; blobs stay where they are */
    uint8_t *data;
    size_t nbytes, room, blob_count;
    slice blobs[MOST_BLOBS];
    bool failed; /* there was no memory, or it has too many blobs */
} outgoing;

/* Writes a message in the place of what was there. */
void put_message(outgoing *out, message_kind kind, uint64_t id, const void *row);

#endif
