/* Open files: read into memory, never mapped. Bytes in memory are read as files are. */
#include "reading.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 1 << 30 }; /* bytes of a read, of which systems allow no more than 2^31 */

gputune_code open_source(source *source, const char *path, gputune_error *error) {
    struct stat status;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), reason = errno;
    if (descriptor < 0) return fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(reason));
    const bool known = !fstat(descriptor, &status), good = known && S_ISREG(status.st_mode);
    if (!good || (uint64_t)status.st_size >= SIZE_MAX / 2) {
        const bool folder = known && S_ISDIR(status.st_mode), pipe = known && S_ISFIFO(status.st_mode);
        close(descriptor);
        return fail(error, GPUTUNE_IO_ERROR, "%s: %s", path,
                    good ? "too large for this machine" : folder ? "a folder, and no file"
                    : pipe ? "a named pipe, and no file" : "no file but a device, a socket or the like");
    }
    *source = (struct source){descriptor, NULL, (uint64_t)status.st_size, status.st_mtim, status.st_ctim};
    return GPUTUNE_OK;
}

void close_source(source *source) {
    if (source->descriptor >= 0) close(source->descriptor);
    source->descriptor = -1;
}

const char *mistaken(const uint8_t *begin, size_t nbytes) {
    static const struct { const char *begins, *is; } KNOWN[] = {
        {"version https://git-lfs", "is a Git LFS pointer to the file: run `git lfs pull` where it was cloned"},
        {"<!doctype", "is a web page (HTML or XML): the download has failed; get the file itself"},
        {"<html", "is a web page (HTML or XML): the download has failed; get the file itself"},
        {"<?xml", "is a web page (HTML or XML): the download has failed; get the file itself"},
        {"PK\3\4", "is an archive: unpack it"}, {"\x1f\x8b", "is an archive: unpack it"}};
    if (!nbytes) return "is empty (0 bytes): copy or download it again";
    for (; nbytes && *begin && strchr(" \t\r\n", *begin); nbytes--) begin++;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const size_t length = strlen(KNOWN[i].begins);
        if (length <= nbytes && !strncasecmp((const char *)begin, KNOWN[i].begins, length)) return KNOWN[i].is;
    }
    return "";
}

extent part_of(extent whole, size_t place, size_t nbytes) {
    return (extent){whole.source, whole.at + place, nbytes, whole.data == NULL ? NULL : whole.data + place};
}

static bool same(struct timespec one, struct timespec other) {
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

static bool is_changed(const source *source) {
    struct stat now;
    if (source->data != NULL) return false;
    return fstat(source->descriptor, &now) || (uint64_t)now.st_size != source->nbytes ||
           !same(now.st_mtim, source->written) || !same(now.st_ctim, source->made);
}

static gputune_code changed(const char *path, gputune_error *error) {
    return fail(error, GPUTUNE_FILE_CHANGED, "%s: it was changed while it was open; open it again, and replace files "
                "by renaming new ones", path);
}

gputune_code damaged(const source *source, const char *path, const char *what, gputune_error *error) {
    if (is_changed(source)) return changed(path, error);
    return fail(error, GPUTUNE_CHECKSUM_MISMATCH, "%s: %s is damaged; generate it again", path, what);
}

gputune_code read_source(const source *source, const char *path, uint64_t at, void *into, size_t nbytes,
                         gputune_error *error) {
    if (source->data != NULL) {
        memcpy(into, source->data + at, nbytes);
        return GPUTUNE_OK;
    }
    for (uint8_t *to = into; nbytes;) {
        const size_t wanted = nbytes < MOST_AT_ONCE ? nbytes : MOST_AT_ONCE;
        const ssize_t got = pread(source->descriptor, to, wanted, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(errno));
        if (!got) return changed(path, error); /* it ended later when it was opened */
        to += got, at += (uint64_t)got, nbytes -= (size_t)got;
    }
    return GPUTUNE_OK;
}
