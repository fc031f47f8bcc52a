/* gputune-agent: the device's part of the target server, for devices without Python.
 *
 * This process listens and never touches OpenCL. It starts another one for each connection, which may hang or die, and
 * ends it when the other side has gone. How the last one ended is told to who connects next and knows the token. */
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000 /* Linux's, which only GNU's headers show */
#endif

enum { MOST_CONNECTIONS = 8, PORT = 22598, ENDED_BYTES = 200, WRONG_USE = 2, MOST_ROUNDS = 100 };
#define GRACE_NS 500000000u

static const char HELP[] =
    "usage: gputune-agent [--listen PORT | --listen ADDRESS:PORT | --listen PATH] [--token_file FILE | --token_stdin]\n"
    "                     [--exit_with_parent]\n"
    "\n"
    "Lets a target server on another machine use the OpenCL devices of this one. Nothing else is needed here.\n"
    "\n"
    "  --listen WHERE     a port on 127.0.0.1 (22598), an IPv4 address and a port, or the path of a local socket;\n"
    "                     of a port 0 the system chooses one, which the first line of the output names\n"
    "  --token_file FILE  the token that both sides have to know, in a file that only you can read\n"
    "  --token_stdin      read the token from the first line of the input\n"
    "  --exit_with_parent stop when the input ends, for a program that starts its own agent\n"
    "  --version, --help\n"
    "\n"
    "Without these options the token is that of the environment variable GPUTUNE_TOKEN. GPUTUNE_OPENCL_LIBRARY names\n"
    "the OpenCL library where it is in no usual place. On the other machine:\n"
    "\n"
    "    gputune target-server --device agent:ADDRESS:PORT\n"
    "\n"
    "Exit codes: 0 after Ctrl-C or SIGTERM, 1 if it cannot listen or has no token, 2 for wrong options.\n";

typedef struct connection {
    pid_t process; /* 0: none */
    int descriptor;
    uint64_t left_ns; /* since when there is no descriptor any more */
} connection;

static volatile sig_atomic_t stopping;

static void stop(int number) { (void)number, stopping = 1; }
static void wake(int number) { (void)number; } /* so that poll returns when a process has ended */

/* --- where it listens --------------------------------------------------------------------------------------------- */

static int listen_at_path(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat known;
    if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, path);
    const int made = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!connect(made, (struct sockaddr *)&address, sizeof address)) return errno = EADDRINUSE, -1;
    if (!lstat(path, &known) && S_ISSOCK(known.st_mode)) unlink(path); /* of an agent that has ended */
    const mode_t before = umask(0177); /* only this user connects */
    const bool bound = made >= 0 && !bind(made, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (!bound) return -1;
    printf("listening on %s\n", path);
    return made;
}

static int listen_at_port(const char *where) {
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
    printf("listening on %s:%u\n", host, ntohs(address.sin_port));
    return made;
}

/* --- processes of connections ------------------------------------------------------------------------------------- */

/* How a process ended, in words; nothing where that was in order. Who has not proved the token changes nothing. */
static void words_of(int status, char text[ENDED_BYTES]) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == STRANGER) return;
    *text = 0;
    if (WIFSIGNALED(status)) snprintf(text, ENDED_BYTES, "it was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status)) snprintf(text, ENDED_BYTES, "it ended with exit code %d", WEXITSTATUS(status));
}

static void collect(connection connections[MOST_CONNECTIONS], char ended[ENDED_BYTES]) {
    int status;
    for (pid_t gone; (gone = waitpid(-1, &status, WNOHANG)) > 0;)
        for (connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
            if (each->process != gone) continue;
            if (each->descriptor >= 0) words_of(status, ended);
            else *ended = 0; /* it was ended here */
            if (each->descriptor >= 0) close(each->descriptor);
            *each = (connection){0, -1, 0};
        }
}

/* The other side has gone: the process notices that and ends, with its votes. */
static void leave(connection *connection) {
    shutdown(connection->descriptor, SHUT_RDWR);
    close(connection->descriptor);
    connection->descriptor = -1, connection->left_ns = now_ns();
}

/* Whether processes are about to end. A kernel that never does may keep them, but not for long. */
static bool any_leaves(const connection connections[MOST_CONNECTIONS]) {
    bool any = false;
    for (const connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (!each->process || each->descriptor >= 0) continue;
        any = true;
        if (now_ns() - each->left_ns > GRACE_NS) kill(each->process, SIGKILL);
    }
    return any;
}

static void begin_process(connection connections[MOST_CONNECTIONS], int listener, const uint8_t stretched[KEY_BYTES],
                          const char *salt, const char *ended) {
    const int descriptor = accept(listener, NULL, NULL), yes = 1;
    connection *free_one = NULL;
    for (connection *each = connections; each < connections + MOST_CONNECTIONS; each++)
        if (!each->process) free_one = each;
    if (descriptor < 0) return;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* fails for local sockets, which need it not */
#ifdef TCP_KEEPIDLE
    const int seconds = 10, times = 3; /* a machine that was switched off says no goodbye, and its process would stay */
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
#endif
    const pid_t process = free_one ? fork() : -1;
    if (!process) {
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the process that listens is killed, this one does not hang on */
#endif
        close(listener);
        for (connection *each = connections; each < connections + MOST_CONNECTIONS; each++)
            if (each->process && each->descriptor >= 0) close(each->descriptor);
        signal(SIGINT, SIG_IGN); /* Ctrl-C is for the process that listens, which then ends this one */
        signal(SIGTERM, SIG_DFL);
        signal(SIGCHLD, SIG_DFL); /* compilers of drivers are waited for by them */
        _exit(serve(descriptor, stretched, salt, ended));
    }
    if (process > 0) *free_one = (connection){process, descriptor, 0};
    else close(descriptor);
}

/* Until a signal, or the end of the input where `input` is a descriptor and not -1. */
static void listen_until_stopped(int listener, int input, const uint8_t stretched[KEY_BYTES], const char *salt) {
    connection connections[MOST_CONNECTIONS];
    char ended[ENDED_BYTES] = "";
    for (size_t i = 0; i < MOST_CONNECTIONS; i++) connections[i] = (connection){0, -1, 0};
    while (!stopping) {
        struct pollfd asked[MOST_CONNECTIONS + 2] = {{listener, POLLIN, 0}};
        asked[MOST_CONNECTIONS + 1] = (struct pollfd){input, POLLIN, 0};
        for (size_t i = 0; i < MOST_CONNECTIONS; i++)
            asked[i + 1] = (struct pollfd){connections[i].descriptor, POLLRDHUP, 0}; /* -1 is passed over */
        const int found = poll(asked, MOST_CONNECTIONS + 2, any_leaves(connections) ? 20 : 500);
        for (size_t i = 0; i < MOST_CONNECTIONS && found > 0; i++)
            if (asked[i + 1].revents) leave(&connections[i]);
        collect(connections, ended);
        char ignored[64];
        if (found > 0 && asked[MOST_CONNECTIONS + 1].revents && read(input, ignored, sizeof ignored) <= 0) break;
        if (found > 0 && asked[0].revents) begin_process(connections, listener, stretched, salt, ended);
    }
    for (size_t i = 0; i < MOST_CONNECTIONS; i++)
        if (connections[i].descriptor >= 0) leave(&connections[i]);
    for (int i = 0; i < MOST_ROUNDS && any_leaves(connections); i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        collect(connections, ended);
    }
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static int refused(const char *what, const char *why) {
    fprintf(stderr, "gputune-agent: error: %s%s\n", what, why);
    return EXIT_FAILURE;
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
    const int listener = strchr(where, '/') ? listen_at_path(where) : listen_at_port(where);
    if (listener < 0 || listen(listener, MOST_CONNECTIONS)) {
        char text[256];
        snprintf(text, sizeof text, "cannot listen on %.200s: ", where);
        return refused(text, strerror(errno));
    }
    fflush(stdout);
    listen_until_stopped(listener, exit_with_parent ? STDIN_FILENO : -1, stretched, salt);
    if (strchr(where, '/')) unlink(where);
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
        if (!strcmp(option, "--token_stdin")) token_stdin = true;
        else if (!strcmp(option, "--exit_with_parent")) exit_with_parent = true;
        else if (!strcmp(option, "--listen") && value) where = arguments[++i];
        else if (!strcmp(option, "--token_file") && value) token_file = arguments[++i];
        else return refused("not an option, or its value is missing: ", option), fputs(HELP, stderr), WRONG_USE;
    }
    return run(where, token_file, token_stdin, exit_with_parent);
}
