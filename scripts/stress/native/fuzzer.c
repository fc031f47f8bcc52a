/* What libFuzzer calls: the C runtime's reader on changed bytes, of which each part is read into memory of its size.
 *
 * Changes leave checksums right most of the time: a memory block, a header, an index or the head of a packed context is
 * changed by itself, and everything is put together again around it. */
#define _GNU_SOURCE /* memfd_create */
#include "../../../runtime/native/src/files/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PREFIX = 48, MEMORY_PREFIX = 36, FRONT = PREFIX + MEMORY_PREFIX, PATH_BYTES = 32 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* --- reading --- */

static void read_all(gputune_file *file) {
    gputune_error error;
    size_t place = 0, graph = 0;
    for (size_t at = 0; at < gputune_context_count(file); at++) {
        const context *context;
        gputune_graph_info info;
        if (context_at(file, at, &context, &error)) {
            if (error.message[0] == 0) abort();
            continue;
        }
        for (size_t one = 0; one < context->section_count; one++) {
            uint8_t *bytes;
            if (!copy_section(context, one, &bytes, &error)) free(bytes);
        }
        for (size_t one = 0; one <= context->graph_count; one++)
            gputune_graph_info_of(file, at, one, &info, &error);
        if (context_identity(file, at) == NULL || !strlen(gputune_context_device(file, at))) continue;
    }
    find_graph(file, NULL, &place, &graph, &error);
    find_graph(file, "main", &place, &graph, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gputune_error error = {GPUTUNE_OK, ""};
    gputune_file *file = calloc(1, sizeof *file);
    char path[PATH_BYTES];
    const int memory = memfd_create("input", MFD_CLOEXEC);
    if (file == NULL || memory < 0 || write(memory, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    if (open_source(&file->source, path, &error)) abort();
    close(memory);
    mutex_open(&file->turn);
    file->owners = 1;
    file->path = "/missing/file";
    gputune_code code = read_form(file, size && *data != 'G', &error);
    if (!code) read_all(file);
    else if (code != error.code || error.message[0] == 0) abort();
    gputune_close(file);
    return 0;
}

/* --- changing --- */

static void put(uint8_t *bytes, size_t number) {
    for (size_t at = 0; at < 4; at++) bytes[at] = (uint8_t)(number >> 8 * at);
}

/* Changes the part of a file at a place, whose length stands at `length` and whose digest at `digest`, and moves what
 * follows so that the section area is aligned as before. Returns the file's bytes; 0 where that does not fit. */
static size_t change(uint8_t *data, size_t size, size_t most, size_t place, size_t length, size_t digest,
                     size_t head_behind) {
    size_t old = little_endian(data + length), head = place + old + head_behind, area = aligned(head);
    if (place > size || old > size - place || area > size || size > most - 64 || most < 64) return 0;
    size_t rest = size - area;
    uint8_t *behind = malloc(head_behind + rest + 1);
    if (behind == NULL) abort();
    memcpy(behind, data + place + old, head_behind);
    memcpy(behind + head_behind, data + area, rest);
    size_t around = place + head_behind + rest + 64; /* 64: for what aligns the section area */
    size_t made = around + old < most ? LLVMFuzzerMutate(data + place, old, most - around) : old;
    put(data + length, made);
    sha256(data + place, made, data + digest);
    size_t end = place + made;
    memcpy(data + end, behind, head_behind);
    end += head_behind;
    memset(data + end, 0, aligned(end) - end);
    memcpy(data + aligned(end), behind + head_behind, rest);
    free(behind);
    return aligned(end) + rest;
}

/* Changes a context's header or memory block. */
static size_t change_context(uint8_t *data, size_t size, size_t most, unsigned seed) {
    if (size < FRONT) return 0;
    size_t block = little_endian(data + PREFIX), header = little_endian(data + 12);
    if (block > size - FRONT || header > size - FRONT - block) return 0;
    if (seed % 4 == 0) return change(data, size, most, FRONT, PREFIX, PREFIX + 4, header);
    return change(data, size, most, FRONT + block, 12, 16, 0);
}

/* Changes the header of one context of a package, whose length stays; its digests are those of sections and index. */
static size_t change_packed(uint8_t *data, size_t size, unsigned seed) {
    size_t index = little_endian(data + 12), area = aligned(PREFIX + index), count = 0, length;
    uint8_t digest[32], *heads[8];
    if (area > size) return 0;
    for (size_t at = area; at + FRONT < size && count < 8; at += 64)
        if (!memcmp(data + at, "GPUTUNE", 8)) heads[count++] = data + at;
    if (count == 0) return 0;
    uint8_t *head = heads[seed % count];
    size_t left = size - (size_t)(head - data), block = little_endian(head + PREFIX), header = little_endian(head + 12);
    if (block > left - FRONT || header > left - FRONT - block || header == 0) return 0;
    length = FRONT + block + header;
    sha256(head, length, digest);
    uint8_t *found = NULL;
    for (size_t at = PREFIX; at + 32 <= PREFIX + index && found == NULL; at++)
        if (!memcmp(data + at, digest, 32)) found = data + at;
    LLVMFuzzerMutate(head + FRONT + block, header, header);
    sha256(head + FRONT + block, header, head + 16);
    sha256(head, length, digest);
    if (found != NULL) memcpy(found, digest, 32);
    sha256(data + PREFIX, index, data + 16);
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    size_t made = 0;
    if (seed % 8 == 0 || size < PREFIX) return LLVMFuzzerMutate(data, size, most);
    seed /= 8;
    if (!memcmp(data, "GPUTUNE", 8)) made = change_context(data, size, most, seed);
    else if (!memcmp(data, "GPUTPKG", 8) && seed % 2) made = change_packed(data, size, seed / 2);
    else if (!memcmp(data, "GPUTPKG", 8)) made = change(data, size, most, PREFIX, 12, 16, 0);
    return made ? made : LLVMFuzzerMutate(data, size, most);
}
