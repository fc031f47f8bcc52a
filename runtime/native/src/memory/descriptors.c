/* Looks at descriptors of memory, as runtime/memory/descriptors.py. */
#define _GNU_SOURCE /* F_GET_SEALS, readlink */
#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_ADD_SEALS /* of Linux 3.17, which older C libraries do not have */
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif
#define SYNC _IOW('b', 0, uint64_t) /* linux/dma-buf.h: struct dma_buf_sync has these flags alone */
enum { SYNC_READ = 1 << 0, SYNC_WRITE = 1 << 1, SYNC_END = 1 << 2, CLOSED_AT_EXEC = 1, CAN_BE_SEALED = 2 };
#define HOW_TO_SEAL "create it by memfd_create with MFD_ALLOW_SEALING, and add F_SEAL_SHRINK by F_ADD_SEALS of fcntl"

gputune_code synchronise(int descriptor, bool begins, bool writes, gputune_error *error) {
    uint64_t flags = SYNC_READ | (writes ? SYNC_WRITE : 0) | (begins ? 0 : SYNC_END);
    if (!ioctl(descriptor, SYNC, &flags)) return GPUTUNE_OK;
    return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the dma-buf cannot be synchronised: %s", strerror(errno));
}

static const char *kind_of(mode_t mode, const char *link) {
    return S_ISDIR(mode) ? "a folder" : S_ISSOCK(mode) ? "a socket" : S_ISFIFO(mode) ? "a pipe"
         : S_ISCHR(mode) ? "a character device" : S_ISBLK(mode) ? "a block device"
         : *link ? link : "of an unknown kind";
}

/* Of a regular file; named: its path in brackets, or "". */
static gputune_code check_seals(int descriptor, const char *named, gputune_error *error) {
    const int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor is a regular file%s, which could be cut short; "
                    HOW_TO_SEAL, named);
    if (seals & F_SEAL_SHRINK) return GPUTUNE_OK;
    return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor's memory is not sealed against shrinking%s: "
                HOW_TO_SEAL, seals & F_SEAL_SEAL ? " and can never be" : "");
}

static gputune_code examine(int descriptor, described *found, gputune_error *error) {
    char path[64], link[128] = "", named[160] = "";
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (readlink(path, link, sizeof link - 1) < 0) *link = 0;
    if (*link == '/') snprintf(named, sizeof named, " (%s)", link);
    if (fstat(descriptor, &status))
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d cannot be used: %s", descriptor, strerror(errno));
    /* A file may have the name of a dma-buf, but does not answer as one. */
    found->dma_buf = (!strncmp(link, "/dmabuf:", 8) || !strncmp(link, "anon_inode:dmabuf", 17)) &&
                     !synchronise(descriptor, true, true, NULL) && !synchronise(descriptor, false, true, NULL);
    if (!found->dma_buf && !S_ISREG(status.st_mode))
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor is %s%s; a sealed memfd or a dma-buf is needed",
                    kind_of(status.st_mode, link), named);
    if (!found->dma_buf) TRY(check_seals(descriptor, named, error));
    const off_t end = found->dma_buf ? lseek(descriptor, 0, SEEK_END) : status.st_size;
    found->nbytes = end < 0 ? 0 : (uint64_t)end;
    return GPUTUNE_OK;
}

gputune_code duplicate(int descriptor, int *own, described *found, gputune_error *error) {
    *own = -1;
    if (descriptor < 0) return fail(error, GPUTUNE_UNUSABLE_MEMORY, "%d is no file descriptor", descriptor);
    *own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (*own < 0)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d cannot be used: %s", descriptor, strerror(errno));
    const gputune_code code = examine(*own, found, error);
    if (code) close(*own), *own = -1;
    return code;
}

int sealed_memfd(size_t nbytes) {
#ifdef SYS_memfd_create /* the C library's own function is younger */
    const int made = (int)syscall(SYS_memfd_create, "gputune", CLOSED_AT_EXEC | CAN_BE_SEALED);
    if (made < 0) return -1;
    if ((off_t)nbytes > 0 && !ftruncate(made, (off_t)nbytes) &&
        !fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return made;
    close(made);
#else
    (void)nbytes;
#endif
    return -1;
}

bool same_memory(int one, int other) {
    struct stat mine, theirs;
    return one >= 0 && other >= 0 && !fstat(one, &mine) && !fstat(other, &theirs) && mine.st_dev == theirs.st_dev &&
           mine.st_ino == theirs.st_ino;
}
