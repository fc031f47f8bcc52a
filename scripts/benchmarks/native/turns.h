/* What the two C programs of `scripts/bench native` share: they say what loading took, then for each line N on standard
 * input what N inferences took, all in ns; the line 0 asks for their memory in kB: all of it, and what is no file's. */
#ifndef TURNS_H
#define TURNS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static char *content_of(const char *path, size_t nbytes) {
    FILE *file = fopen(path, "rb");
    char *content = calloc(nbytes, 1);
    if (file == NULL || content == NULL || fread(content, 1, nbytes, file) != nbytes) die(path);
    fclose(file);
    return content;
}

static void tell_memory(void) {
    char line[256];
    long all = 0, own = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "VmRSS: %ld", &all);
        sscanf(line, "RssAnon: %ld", &own);
    }
    if (file != NULL) fclose(file);
    printf("%ld %ld\n", all, own);
}

static void take_turns(void (*infer)(void)) {
    for (long count; scanf("%ld", &count) == 1; fflush(stdout)) {
        if (count == 0) {
            tell_memory();
            continue;
        }
        while (count-- > 0) {
            uint64_t begun_ns = now_ns();
            infer();
            printf("%llu%c", (unsigned long long)(now_ns() - begun_ns), count ? ' ' : '\n');
        }
    }
}

#endif
