/* Can another user change a file whose content is run? As core/ownership.py: the file and its folders up to the home
 * folder belong to the user or the system, and nobody else may write there. */
#include "reading.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_BYTES = 16384 }; /* of a user's or group's entry */

/* Root, or on Android who is no app. */
static bool of_the_system(unsigned number) {
#ifdef __ANDROID__
    return number < 10000;
#else
    return number == 0;
#endif
}

/* Whether a group is the system's, or its owner's alone: one with the user's name or number. */
static bool is_private(gid_t group, uid_t owner) {
    char users[NAMES_BYTES], groups[NAMES_BYTES];
    struct passwd user, *found_user = NULL;
    struct group entry, *found = NULL;
    if (of_the_system(group)) return true;
    getpwuid_r(owner, &user, users, sizeof users, &found_user);
    if (getgrgid_r(group, &entry, groups, sizeof groups, &found)) return false;
    bool named = found != NULL && found_user != NULL && !strcmp(entry.gr_name, user.pw_name);
    for (char **member = found == NULL ? NULL : entry.gr_mem; member != NULL && *member != NULL; member++)
        if (found_user == NULL || strcmp(*member, user.pw_name)) return false;
    return named || group == owner;
}

/* Who else can write to a file or folder; NULL where nobody can. */
static const char *changeable(const struct stat *status) {
    bool sticky = S_ISDIR(status->st_mode) && status->st_mode & S_ISVTX;
    if (status->st_uid != geteuid() && !of_the_system(status->st_uid)) return "belongs to another user";
    if (status->st_mode & S_IWOTH && !sticky) return "can be written by every user";
    bool shared = status->st_mode & S_IWGRP && !sticky && !is_private(status->st_gid, status->st_uid);
    return shared ? "can be written by a group" : NULL;
}

bool lies_in(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return length == 1 || (!strncmp(path, folder, length) && (path[length] == '/' || !path[length])); /* 1: the root */
}

static bool is_trusted(const char *path) {
    const char *next = getenv("GPUTUNE_TRUSTED_FOLDERS");
    bool trusted = false;
    for (size_t length; next != NULL && *next && !trusted; next += length + (next[length] == ':')) {
        length = strcspn(next, ":");
        char folder[PATH_MAX], *found = NULL;
        if (length && length < sizeof folder) {
            memcpy(folder, next, length);
            folder[length] = 0;
            found = realpath(folder, NULL);
        }
        trusted = found != NULL && lies_in(path, found);
        free(found);
    }
    return trusted;
}

gputune_code check_trusted(const char *path, gputune_error *error) {
    const char *home = getenv("HOME"), *why = NULL;
    char *end = home != NULL && *home ? realpath(home, NULL) : NULL, *place = realpath(path, NULL);
    gputune_code code = GPUTUNE_OK;
    struct stat status;
    if (place == NULL) code = fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(errno));
    for (bool more = place != NULL && !is_trusted(place); more && !stat(place, &status);) {
        if ((why = changeable(&status)) != NULL)
            code = fail(error, GPUTUNE_UNTRUSTED_FILE,
                        "%s: %s %s; change that, or name a folder that you trust in GPUTUNE_TRUSTED_FOLDERS: a context "
                        "runs as a program of yours", path, place, why);
        more = why == NULL && strcmp(place, "/") && (end == NULL || strcmp(place, end));
        char *slash = strrchr(place, '/');
        slash[slash == place] = 0;
    }
    free(place);
    free(end);
    return code;
}
