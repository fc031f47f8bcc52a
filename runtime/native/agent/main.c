/* gputune-agent: the device's part of the target server, for devices without Python.
 *
 * This process listens and never touches OpenCL. It starts another one for each connection, which may hang or die, and
 * ends it when the other side has gone. At its start another process tries the devices, and says what does not work. */
#include "listener.h"

#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WRONG_USE = 2, BACKLOG = 128, BOUND_BYTES = 128 }; /* a path of a socket is shorter */

static const char HELP[] =
    "usage: gputune-agent [--listen PORT | --listen ADDRESS:PORT | --listen PATH] [--token_file FILE | --token_stdin]\n"
    "                     [--exit_with_parent]\n"
    "       gputune-agent --check\n"
    "\n"
    "Lets a target server on another machine use the OpenCL devices of this one. Nothing else is needed here.\n"
    "\n"
    "  --listen WHERE     a port on 127.0.0.1 (22598), an IPv4 address and a port, or the path of a local socket;\n"
    "                     of a port 0 the system chooses one, which the first line of the output names\n"
    "  --token_file FILE  the token that both sides have to know, in a file that only you can read\n"
    "  --token_stdin      read the token from the first line of the input\n"
    "  --exit_with_parent stop when the input ends, for a program that starts its own agent\n"
    "  --check            say which devices compile and run a kernel, and what is missing; it needs no token\n"
    "  --version, --help\n"
    "\n"
    "Without these options the token is that of the environment variable GPUTUNE_TOKEN. GPUTUNE_OPENCL_LIBRARY names\n"
    "the OpenCL library where it is in no usual place. On the other machine:\n"
    "\n"
    "    gputune target-server --device agent:ADDRESS:PORT\n"
    "\n"
    "Exit codes: 0 after Ctrl-C or SIGTERM, and after --check if all devices work; 1 if it cannot listen or has no\n"
    "token, or --check finds something missing; 2 for wrong options.\n";

static volatile sig_atomic_t stopping;

static void stop(int number) { (void)number, stopping = 1; }
static void wake(int number) { (void)number; } /* so that poll returns when a process has ended */

/* --- where it listens --------------------------------------------------------------------------------------------- */

/* Whether a program listens at an address: one that hangs takes no more connections, and is not waited for. */
static bool is_taken(int descriptor, const struct sockaddr_un *address) {
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    const bool taken = !connect(descriptor, (const struct sockaddr *)address, sizeof *address) || errno == EAGAIN;
    fcntl(descriptor, F_SETFL, 0);
    return taken;
}

static int listen_at_path(const char *path, char bound[BOUND_BYTES]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat known;
    if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, path);
    const int made = socket(AF_UNIX, SOCK_STREAM, 0);
    if (is_taken(made, &address)) return errno = EADDRINUSE, -1;
    if (!lstat(path, &known) && S_ISSOCK(known.st_mode)) unlink(path); /* of an agent that has ended */
    const mode_t before = umask(0177); /* only this user connects */
    const bool is_bound = made >= 0 && !bind(made, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (!is_bound) return -1;
    snprintf(bound, BOUND_BYTES, "%s", path);
    return made;
}

static int listen_at_port(const char *where, char bound[BOUND_BYTES]) {
    const char *const colon = strrchr(where, ':');
    char host[INET_ADDRSTRLEN] = "127.0.0.1", *end;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t nbytes = sizeof address;
    const unsigned long port = strtoul(colon ? colon + 1 : where, &end, 10);
    const int yes = 1;
    if (colon) snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    if (*end || end == where || port > 65535 || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        return errno = EINVAL, -1;
    address.sin_port = htons((uint16_t)port);
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) return -1;
    if (bind(made, (struct sockaddr *)&address, nbytes) || getsockname(made, (struct sockaddr *)&address, &nbytes))
        return -1;
    snprintf(bound, BOUND_BYTES, "%s:%u", host, ntohs(address.sin_port));
    return made;
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static int refused(const char *what, const char *why) {
    fprintf(stderr, "gputune-agent: error: %s%s\n", what, why);
    return EXIT_FAILURE;
}

/* Tries the devices in a process of its own, so that nothing waits for it. */
static pid_t begin_check(int listener) {
    const long parent = getpid();
    const pid_t process = fork();
    if (process) return process;
    end_with_parent(parent);
    close(listener);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    if (nice(19) == -1) errno = 0; /* what is measured at the same time comes first */
    _exit(check_devices(true) ? EXIT_SUCCESS : EXIT_FAILURE);
}

static int run(const char *where, const char *token_file, bool token_stdin, bool exit_with_parent) {
    static token known;
    gputune_error error;
    char salt[SALT_DIGITS + 1];
    uint8_t stretched[KEY_BYTES];
    gputune_code code = token_file    ? token_of_file(&known, token_file, &error)
                        : token_stdin ? token_of_line(&known, STDIN_FILENO, &error)
                                      : token_of_variable(&known, "GPUTUNE_TOKEN", &error);
    if (!code) code = fresh_digits(salt, SALT_DIGITS, &error);
    if (!code) code = stretch_token(&known, salt, stretched, &error);
    memset(&known, 0, sizeof known);
    if (code) return refused(error.message, "");
    signal(SIGPIPE, SIG_IGN);
    const struct sigaction on_stop = {.sa_handler = stop}, on_child = {.sa_handler = wake};
    sigaction(SIGINT, &on_stop, NULL); /* without SA_RESTART, so that poll returns */
    sigaction(SIGTERM, &on_stop, NULL);
    sigaction(SIGCHLD, &on_child, NULL);
    char bound[BOUND_BYTES];
    const int listener = strchr(where, '/') ? listen_at_path(where, bound) : listen_at_port(where, bound);
    if (listener < 0 || listen(listener, BACKLOG)) {
        char text[256];
        snprintf(text, sizeof text, "cannot listen on %.200s: ", where);
        return refused(text, strerror(errno));
    }
    struct stat own = {.st_ino = 0}, there;
    if (strchr(where, '/')) lstat(where, &own);
    fcntl(listener, F_SETFL, O_NONBLOCK); /* a connection may go before it is accepted */
    fcntl(listener, F_SETFD, FD_CLOEXEC);
    const pid_t checks = begin_check(listener);
    printf("listening on %s\n", bound);
    fflush(stdout);
    listen_until_stopped(listener, exit_with_parent ? STDIN_FILENO : -1, stretched, salt, &stopping);
    if (checks > 0) kill(checks, SIGKILL);
    const bool is_own = own.st_ino && !lstat(where, &there) && there.st_ino == own.st_ino && there.st_dev == own.st_dev;
    if (is_own) unlink(where); /* and not that of another agent, which has it now */
    return EXIT_SUCCESS;
}

int main(int count, char **arguments) {
    const char *where = "22598", *token_file = NULL;
    bool token_stdin = false, exit_with_parent = false;
    setenv("POCL_AFFINITY", "1", 0); /* as variants are measured anywhere; drivers read it when they are loaded */
    setenv("POCL_KERNEL_CACHE", "0", 0);
    for (int i = 1; i < count; i++) {
        const char *const option = arguments[i], *const value = i + 1 < count ? arguments[i + 1] : NULL;
        if (!strcmp(option, "--help")) return fputs(HELP, stdout), EXIT_SUCCESS;
        if (!strcmp(option, "--version")) return puts(GPUTUNE_AGENT_SOFTWARE), EXIT_SUCCESS;
        if (!strcmp(option, "--check")) return check_devices(false) ? EXIT_SUCCESS : EXIT_FAILURE;
        if (!strcmp(option, "--token_stdin")) token_stdin = true;
        else if (!strcmp(option, "--exit_with_parent")) exit_with_parent = true;
        else if (!strcmp(option, "--listen") && value) where = arguments[++i];
        else if (!strcmp(option, "--token_file") && value) token_file = arguments[++i];
        else return refused("not an option, or its value is missing: ", option), fputs(HELP, stderr), WRONG_USE;
    }
    return run(where, token_file, token_stdin, exit_with_parent);
}
