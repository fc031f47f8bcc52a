/* A process that votes as it is told, a command a line: `open N PRESET`, `begin N PHASE`, `end N PHASE`, `close N`,
 * `told N` for the next warning, `storm N` for several threads that vote at once; it answers each with a line.
 *
 * voting ROOT TYPE VENDOR NAME: of a device with controls below a root. */
#include "graphs/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, THREADS = 4, TURNS = 100 };

gputune_code votes_open_below(const char *root, const char *preset, const identity *device, votes **made,
                              gputune_error *error);

static void *storm(void *argument) {
    votes *votes = argument;
    char text[REASON_BYTES];
    for (int i = 0; i < TURNS; i++) {
        votes_begin(votes, "execute");
        votes_warning(votes, text);
        votes_end(votes, "execute");
    }
    return NULL;
}

int main(int argc, char **argv) {
    votes *opened[MOST] = {NULL};
    char line[256], command[16], word[64], text[REASON_BYTES];
    int number;
    if (argc != 5) return 2;
    const identity device = {.device_type = argv[2], .vendor = argv[3], .name = argv[4]};
    while (fgets(line, sizeof line, stdin)) {
        gputune_error error = {GPUTUNE_OK, ""};
        *word = 0;
        if (sscanf(line, "%15s %d %63s", command, &number, word) < 2 || number < 0 || number >= MOST) return 3;
        if (strcmp(command, "open") == 0) votes_open_below(argv[1], word, &device, &opened[number], &error);
        else if (strcmp(command, "begin") == 0) votes_begin(opened[number], word);
        else if (strcmp(command, "end") == 0) votes_end(opened[number], word);
        else if (strcmp(command, "told") == 0 && votes_warning(opened[number], text)) strcpy(error.message, text);
        else if (strcmp(command, "close") == 0) votes_close(opened[number], true), opened[number] = NULL;
        else if (strcmp(command, "storm") == 0) {
            thread threads[THREADS];
            for (int i = 0; i < THREADS; i++)
                if (!thread_start(&threads[i], storm, opened[number])) return 4;
            for (int i = 0; i < THREADS; i++) thread_join(threads[i]);
        }
        puts(error.message);
        fflush(stdout);
    }
    return 0;
}
