/* Changes the file of a context in place at each moment at which it is read, and says how it is used then.
 *
 * replaced LIBRARY CONTEXT OTHER CHANGE: the OpenCL library of fake_opencl.c, two contexts whose outputs have one value
 * each, and "short", "zeros" or "another". Linked with -Wl,--wrap=pread. A line for each moment: what opening, loading,
 * running, loading again and running that have led to, the name of a code or the value. */
#define _GNU_SOURCE
#include "gputune.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ELEMENTS = 64 };

typedef struct bytes {
    char *data;
    size_t nbytes;
} bytes;

static const char *path, *change;
static bytes as_it_was, other;
static long reads, moment;

static bytes content_of(const char *from) {
    struct stat status;
    FILE *file = fopen(from, "rb");
    if (!file || fstat(fileno(file), &status)) exit(2);
    bytes found = {calloc(1, (size_t)status.st_size), (size_t)status.st_size};
    if (fread(found.data, 1, found.nbytes, file) != found.nbytes) exit(2);
    fclose(file);
    return found;
}

static void write_over(bytes content, size_t nbytes) {
    const int file = open(path, O_WRONLY);
    if (file < 0 || pwrite(file, content.data, content.nbytes, 0) != (ssize_t)content.nbytes) exit(2);
    if (ftruncate(file, (off_t)nbytes)) exit(2);
    close(file);
}

/* The file as it was, and so old that a change is seen however coarse the clock of the file system is. */
static void restore(void) {
    write_over(as_it_was, as_it_was.nbytes);
    if (utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0)) exit(2);
}

static void change_file(void) {
    bytes zeros = {calloc(1, as_it_was.nbytes), as_it_was.nbytes};
    if (!strcmp(change, "short")) write_over((bytes){NULL, 0}, 100);
    else if (!strcmp(change, "zeros")) write_over(zeros, zeros.nbytes);
    else write_over(other, other.nbytes);
    free(zeros.data);
}

ssize_t __real_pread(int file, void *into, size_t nbytes, off_t place);
ssize_t __wrap_pread(int file, void *into, size_t nbytes, off_t place);
ssize_t __wrap_pread(int file, void *into, size_t nbytes, off_t place) {
    if (__atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED) == moment) change_file();
    return __real_pread(file, into, nbytes, place);
}

/* Loads and runs the context; what that led to. */
static void use(gputune_device *device, const gputune_file *file, gputune_error *error) {
    float input[ELEMENTS] = {0}, output[ELEMENTS] = {0};
    gputune_graph *graph;
    const gputune_value in = {"x", input, NULL}, out = {"y", output, NULL};
    gputune_code code = gputune_load(device, file, NULL, &graph, error);
    if (code) {
        printf(" %s", gputune_code_name(code));
        return;
    }
    code = gputune_run(graph, &in, 1, &out, 1, error);
    bool same = true;
    for (int i = 1; i < ELEMENTS; i++) same = same && output[i] == output[0];
    if (code || !same) printf(" %s", code ? gputune_code_name(code) : "wrong");
    else printf(" %g", output[0]);
    gputune_unload(graph);
}

int main(int argc, char **argv) {
    gputune_error error;
    gputune_device *device;
    if (argc != 5) return 2;
    path = argv[2], change = argv[4];
    as_it_was = content_of(path), other = content_of(argv[3]);
    if (gputune_open_device(&(gputune_device_options){.library = argv[1]}, &device, &error)) return 2;
    long most = 1;
    for (moment = -1; moment < most; moment++) {
        gputune_file *file;
        restore();
        reads = 0;
        printf("%ld:", moment);
        const gputune_code code = gputune_open(path, &file, &error);
        if (code) printf(" %s", gputune_code_name(code));
        for (int time = 0; time < 2 && !code; time++) use(device, file, &error);
        if (!code) gputune_close(file);
        if (moment < 0) most = reads; /* undisturbed */
        putchar('\n');
    }
    gputune_close_device(device);
    return 0;
}
