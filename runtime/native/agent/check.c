/* Tries the devices as a target server uses them: opens each, builds and runs a kernel, and reads what it computes. */
#include "listener.h"

#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* WORKS, FAILS: there may be a device behind it; NO_MORE: there is none; EMPTY: there is no
 * device at all, which was said; ENDS: its process has ended, and no other device is tried. */
enum { WORKS, FAILS, NO_MORE, EMPTY, ENDS, CHECK_SECONDS = 60, ITEMS = 4 };

static const char SOURCE[] = "__kernel void check(__global int *x) { x[get_global_id(0)] *= 2; }";

/* Whether a program is in a folder of PATH. */
static bool has_program(const char *name) {
    char path[512];
    for (const char *next = getenv("PATH"); next && *next;) {
        const size_t length = strcspn(next, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)length, next, name);
        if (length + strlen(name) + 1 < sizeof path && !access(path, X_OK)) return true;
        next += length + (next[length] == ':');
    }
    return false;
}

static gputune_code run_kernel(session *session, uint64_t place, gputune_error *error) {
    const int32_t values[ITEMS] = {1, 2, 3, 4};
    int32_t found[ITEMS];
    const span whole = {1, 0, sizeof values};
    const slice data = {(const uint8_t *)values, sizeof values};
    const given given = {1, 0, sizeof values, 0};
    const batch batch = {(const size_t[]){3}, 1, 1, true};
    const bind_message bind = {3, 2, "check", {ITEMS}, 1, {ITEMS}, 1, &given, 1};
    opened_message opened = {.variables_count = 0};
    contents_message contents;
    built_message built;
    timed_message timed;
    const struct step {
        message_kind kind;
        const void *asked;
        void *reply;
    } steps[] = {
        {OPEN_MESSAGE, &(open_message){place, false, NULL, 0}, &opened},
        {ALLOCATE_MESSAGE, &(allocate_message){1, sizeof values}, NULL},
        {WRITE_MESSAGE, &(write_message){&whole, 1, &data, 1}, NULL},
        {BUILD_MESSAGE, &(build_message){2, SOURCE, "", {NULL, 0}}, &built},
        {BIND_MESSAGE, &bind, NULL},
        {TIME_PASS_MESSAGE, &(time_pass_message){&batch, 1, 0}, &timed},
        {READ_MESSAGE, &(read_message){&whole, 1}, &contents},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        TRY(carry_out(session, steps[i].kind, steps[i].asked, steps[i].reply, error));
    memcpy(found, contents.data[0].data, sizeof found);
    for (size_t i = 0; i < ITEMS; i++)
        if (found[i] != 2 * values[i])
            return fail(error, GPUTUNE_LAUNCH_FAILED, "a kernel computed %ld, not %ld", (long)found[i],
                        2 * (long)values[i]);
    return GPUTUNE_OK;
}

static void say_line(bool quiet, const char *device, const char *what) {
    fprintf(quiet ? stderr : stdout, "%s%s%s\n", quiet ? "gputune-agent: warning: " : "", device, what);
}

/* Tries the device at a place of the list, in a process for it alone. */
static int try_device(size_t place, bool quiet) {
    static session session;
    char device[GPUTUNE_MESSAGE_BYTES], text[2 * GPUTUNE_MESSAGE_BYTES];
    gputune_error error;
    found_device *found;
    size_t count;
    session.limits = (frame_limits){1u << 20, 1u << 20, MOST_BLOBS};
    if (devices_of(&session, &found, &count, &error)) {
        say_line(quiet, "", error.message);
        return EMPTY;
    }
    if (place >= count) return NO_MORE;
    const identity *const known = &found[place].identity;
    snprintf(device, sizeof device, "#%zu %s (%s, driver %s): ", place, known->name, known->platform,
             known->driver_version);
    const uint64_t begun_ns = now_ns();
    if (!run_kernel(&session, place, &error)) {
        snprintf(text, sizeof text, "works, it compiled and ran a kernel in %.1f s",
                 (double)(now_ns() - begun_ns) / 1e9);
        if (!quiet) say_line(quiet, device, text);
        return WORKS;
    }
    snprintf(text, sizeof text, "it cannot compile and run a kernel: %s%s%.500s", error.message,
             session.said ? ": " : "", session.said ? session.said : "");
    for (char *each = text; *each; each++) *each = (unsigned char)*each < ' ' ? ' ' : *each;
    cut_text(text);
    say_line(quiet, device, text);
    return FAILS;
}

/* Tries a device in a process for it alone, and says how that ended if it was ended. */
static int code_of(size_t place, bool quiet) {
    const long parent = getpid();
    char text[128];
    int status;
    fflush(NULL);
    const pid_t process = fork();
    if (!process) {
        end_with_parent(parent);
        alarm(CHECK_SECONDS);
        const int code = try_device(place, quiet);
        fflush(NULL);
        _exit(code);
    }
    if (process < 0 || waitpid(process, &status, 0) != process) return ENDS;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= EMPTY) return WEXITSTATUS(status);
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (number == SIGALRM) snprintf(text, sizeof text, "compiling and running a kernel took over %d s", CHECK_SECONDS);
    else snprintf(text, sizeof text, "the driver ended the process%s %d", number ? " by signal" : ", with exit code",
                  number ? number : WEXITSTATUS(status));
    char device[32];
    snprintf(device, sizeof device, "#%zu: ", place);
    say_line(quiet, device, text);
    return ENDS;
}

bool check_devices(bool quiet) {
    size_t place = 0;
    bool all = true;
    int code;
    while ((code = code_of(place, quiet)) == WORKS || code == FAILS) all = all && code == WORKS, place++;
    if ((!all || code == ENDS) && !has_program("ld"))
        say_line(quiet, "", "there is no `ld` on the PATH, and some drivers link kernels by it: install binutils");
    return all && code == NO_MORE;
}
