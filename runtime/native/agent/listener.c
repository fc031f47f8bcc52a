/* Accepts connections, each of which has a process of its own.
 *
 * A connection is unproven until its process says that the other side knows the token. Unproven ones have places of
 * their own: when all are taken, the newest takes that of the oldest, among those of the address that has most. So who
 * knows the token gets in, and an address shares its places only with itself as long as others have fewer.
 *
 * How a process ended belongs to its session, whose random name only its client knows. */
#include "listener.h"

#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000 /* Linux's, which only GNU's headers show */
#endif

enum {
    MOST_UNPROVEN = 64,
    MOST_PLACES = MOST_CONNECTIONS + MOST_UNPROVEN,
    MOST_ENDINGS = 64,
    MOST_ROUNDS = 100,
    FROM_BYTES = 32,
    LINE_BYTES = 400
};
#define GRACE_NS 500000000u
#define PAUSE_NS 500000000u /* after a connection that could not be accepted, for lack of descriptors say */
#define BETWEEN_STRANGERS_NS 1000000000u /* lines about them are no flood */

typedef struct connection {
    pid_t process;    /* 0: none */
    int descriptor;   /* -1: the other side has gone */
    int channel;      /* by which its process introduces itself; -1: that is done */
    uint64_t left_ns; /* since when there is no descriptor any more */
    uint64_t place;   /* in the order in which all were accepted */
    uint64_t number;  /* of those that proved the token */
    uint32_t address; /* the other side's, 0 of local sockets */
    char from[FROM_BYTES];
    char session[SESSION_DIGITS + 1]; /* "": unproven */
} connection;

typedef struct listener {
    int descriptor;
    const uint8_t *stretched;
    const char *salt;
    connection connections[MOST_PLACES];
    struct ending {
        char session[SESSION_DIGITS + 1], words[ENDED_BYTES];
    } endings[MOST_ENDINGS]; /* a ring */
    uint64_t ending_count, accepted, proven, told_ns, paused_ns;
} listener;

#define EACH(listener, each) \
    (connection *each = (listener)->connections; each < (listener)->connections + MOST_PLACES; each++)

/* Writes a line, unless the output is full: who does not read it keeps nobody waiting. */
static void tell(const char *format, ...) LIKE_PRINTF(1, 2);
static void tell(const char *format, ...) {
    char line[LINE_BYTES];
    struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
    va_list values;
    va_start(values, format);
    write_text(line, sizeof line - 1, format, values);
    va_end(values);
    strcat(line, "\n");
    if (poll(&output, 1, 0) == 1 && output.revents == POLLOUT && write(STDOUT_FILENO, line, strlen(line)) < 0) return;
}

void end_with_parent(long parent) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(STRANGER); /* it has ended before that */
}

/* --- connections that end ----------------------------------------------------------------------------------------- */

static bool is_proven(const connection *connection) { return *connection->session; }

static void forget_connection(connection *gone) {
    if (gone->descriptor >= 0) close(gone->descriptor);
    if (gone->channel >= 0) close(gone->channel);
    *gone = (connection){.descriptor = -1, .channel = -1};
}

/* Ends the process of a connection that has proved nothing, so it has nothing of the device. */
static void put_out(connection *stranger) {
    kill(stranger->process, SIGKILL);
    while (waitpid(stranger->process, NULL, 0) < 0 && errno == EINTR);
    forget_connection(stranger);
}

/* How a process ended, in words; nothing if that was in order. */
static void words_of(int status, char text[ENDED_BYTES]) {
    *text = 0;
    if (WIFSIGNALED(status)) snprintf(text, ENDED_BYTES, "it was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status)) snprintf(text, ENDED_BYTES, "it ended with exit code %d", WEXITSTATUS(status));
}

static void note_end(listener *listener, const connection *gone, int status) {
    struct ending ending;
    words_of(status, ending.words);
    if (gone->descriptor < 0) *ending.words = 0; /* it was ended here */
    if (is_proven(gone)) {
        tell("connection %llu has ended%s%s", (unsigned long long)gone->number, *ending.words ? ": " : "",
             ending.words);
        memcpy(ending.session, gone->session, sizeof ending.session);
        if (*ending.words) listener->endings[listener->ending_count++ % MOST_ENDINGS] = ending;
    } else if (now_ns() - listener->told_ns > BETWEEN_STRANGERS_NS) {
        listener->told_ns = now_ns();
        tell("a connection from %s did not prove that it knows the token", gone->from);
    }
}

static void collect(listener *listener) {
    int status;
    for (pid_t gone; (gone = waitpid(-1, &status, WNOHANG)) > 0;)
        for EACH(listener, each) {
            if (each->process != gone) continue;
            note_end(listener, each, status);
            forget_connection(each);
        }
}

/* The other side has gone: the process notices that and ends, with its votes. */
static void leave(connection *connection) {
    if (!is_proven(connection)) {
        put_out(connection);
        return;
    }
    shutdown(connection->descriptor, SHUT_RDWR);
    close(connection->descriptor);
    connection->descriptor = -1, connection->left_ns = now_ns();
}

/* Whether processes are about to end. A kernel that never does may keep them, but not for long. */
static bool any_leaves(listener *listener) {
    bool any = false;
    for EACH(listener, each) {
        if (!each->process || each->descriptor >= 0) continue;
        any = true;
        if (now_ns() - each->left_ns > GRACE_NS) kill(each->process, SIGKILL);
    }
    return any;
}

/* --- connections that begin --------------------------------------------------------------------------------------- */

/* A free place for a newcomer, which an unproven connection may have to leave. */
static connection *take_place(listener *listener) {
    size_t unproven = 0, most = 0;
    connection *leaves = NULL, *free_one = NULL;
    for EACH(listener, each) {
        size_t beside = 0;
        if (!each->process) free_one = each;
        if (!each->process || is_proven(each)) continue;
        for EACH(listener, other) beside += other->process && !is_proven(other) && other->address == each->address;
        if (beside > most || (beside == most && each->place < leaves->place)) most = beside, leaves = each;
        unproven++;
    }
    if (unproven < MOST_UNPROVEN) return free_one;
    put_out(leaves);
    return leaves;
}

/* A machine that was switched off says no goodbye, and its process would stay. */
static void keep_alive(int descriptor) {
    const int yes = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* fails for local sockets, which need it not */
#ifdef TCP_KEEPIDLE
    const int seconds = 10, times = 3;
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
#endif
}

static void serve_in_child(listener *listener, int descriptor, int channel, long parent) {
    end_with_parent(parent);
    close(listener->descriptor);
    for EACH(listener, each)
        if (each->process) forget_connection(each);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the process that listens, which then ends this one */
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_DFL); /* compilers of drivers are waited for by them */
    _exit(serve(descriptor, channel, listener->stretched, listener->salt));
}

static void begin_process(listener *listener) {
    struct sockaddr_in from = {.sin_family = AF_UNIX};
    socklen_t nbytes = sizeof from;
    const int descriptor = accept(listener->descriptor, (struct sockaddr *)&from, &nbytes);
    if (descriptor < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) listener->paused_ns = now_ns();
        return;
    }
    connection *const made = take_place(listener);
    int ends[2] = {-1, -1};
    const long parent = getpid();
    fcntl(descriptor, F_SETFD, FD_CLOEXEC); /* compilers that drivers start do not keep it open */
    keep_alive(descriptor);
    const pid_t process = socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ? -1 : fork();
    if (!process) {
        close(ends[0]);
        serve_in_child(listener, descriptor, ends[1], parent);
    }
    if (ends[1] >= 0) close(ends[1]);
    *made = (connection){.process = process, .descriptor = descriptor, .channel = ends[0]};
    made->place = listener->accepted++;
    if (from.sin_family == AF_INET) made->address = from.sin_addr.s_addr;
    if (!made->address || !inet_ntop(AF_INET, &from.sin_addr, made->from, sizeof made->from))
        strcpy(made->from, "a local socket");
    if (process > 0) return;
    forget_connection(made);
    listener->paused_ns = now_ns();
}

/* The other side has proved the token, and names its session. */
static void admit(listener *listener, connection *newcomer) {
    introduction said;
    admission told = {.admitted = false};
    size_t known = 0;
    const bool whole = recv(newcomer->channel, &said, sizeof said, MSG_DONTWAIT) == sizeof said;
    for EACH(listener, each) known += is_proven(each);
    if (whole && known < MOST_CONNECTIONS) {
        told.admitted = true;
        memcpy(newcomer->session, said.session, sizeof said.session);
        newcomer->number = ++listener->proven;
        for (size_t i = 0; i < MOST_ENDINGS && *said.earlier; i++)
            if (!strcmp(listener->endings[i].session, said.earlier))
                memcpy(told.ended, listener->endings[i].words, sizeof told.ended);
        tell("connection %llu from %s", (unsigned long long)newcomer->number, newcomer->from);
    } else if (whole) tell("a connection from %s was refused: %d are open", newcomer->from, MOST_CONNECTIONS);
    if (whole && send(newcomer->channel, &told, sizeof told, MSG_DONTWAIT) < 0) told.admitted = false;
    close(newcomer->channel);
    newcomer->channel = -1;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static void end_all(listener *listener) {
    for EACH(listener, each)
        if (each->process && each->descriptor >= 0) leave(each);
    for (int i = 0; i < MOST_ROUNDS && any_leaves(listener); i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        collect(listener);
    }
}

void listen_until_stopped(int descriptor, int input, const uint8_t stretched[KEY_BYTES], const char *salt,
                          const volatile sig_atomic_t *stopping) {
    enum { INPUT = 1, FIRST, ALL = FIRST + 2 * MOST_PLACES };
    static listener listener;
    listener.descriptor = descriptor, listener.stretched = stretched, listener.salt = salt;
    for EACH(&listener, each) *each = (connection){.descriptor = -1, .channel = -1};
    while (!*stopping) {
        const bool pauses = listener.paused_ns && now_ns() - listener.paused_ns < PAUSE_NS;
        struct pollfd asked[ALL] = {{pauses ? -1 : descriptor, POLLIN, 0}, {input, POLLIN, 0}};
        for (size_t i = 0; i < MOST_PLACES; i++) { /* -1 is passed over */
            asked[FIRST + 2 * i] = (struct pollfd){listener.connections[i].channel, POLLIN, 0};
            asked[FIRST + 2 * i + 1] = (struct pollfd){listener.connections[i].descriptor, POLLRDHUP, 0};
        }
        const int found = poll(asked, ALL, any_leaves(&listener) ? 20 : 500);
        if (found < 0 && errno != EINTR) nanosleep(&(struct timespec){0, 20000000}, NULL); /* there is no memory, say */
        for (size_t i = 0; i < MOST_PLACES && found > 0; i++) {
            if (asked[FIRST + 2 * i].revents) admit(&listener, &listener.connections[i]);
            if (asked[FIRST + 2 * i + 1].revents) leave(&listener.connections[i]);
        }
        collect(&listener);
        char ignored[64];
        if (found > 0 && asked[INPUT].revents && read(input, ignored, sizeof ignored) <= 0) break;
        if (found > 0 && asked[0].revents) begin_process(&listener);
    }
    end_all(&listener);
}
