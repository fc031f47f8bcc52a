/* Serves a connection: the handshake, then requests, one after the other. */
#include "session.h"

#include "listener.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROOF_SECONDS = 10 };
static const frame_limits LIMITS = {1u << 30, 512u << 10, MOST_BLOBS};

/* What there has to be, or may not be, when a request comes. */
typedef enum state { ANYTHING, NO_DEVICE, A_DEVICE, NO_PROFILE, A_PROFILE } state;

/* By request: what it needs, also what a handle in it has to stand for, and where it has that; what answers it. */
static const struct {
    handler *answer;
    message_kind reply;
    state state;
    object_kind of;
    size_t handle;
} ANSWERS[MESSAGE_KINDS] = {
    [LIST_DEVICES_MESSAGE] = {list_devices, DEVICES_MESSAGE, ANYTHING, NOTHING, 0},
    [OPEN_MESSAGE] = {open_device, OPENED_MESSAGE, NO_DEVICE, NOTHING, 0},
    [ALLOCATE_MESSAGE] = {allocate_buffer, DONE_MESSAGE, A_DEVICE, NOTHING, 0},
    [FREE_MESSAGE] = {forget, DONE_MESSAGE, ANYTHING, NOTHING, 0},
    [WRITE_MESSAGE] = {write_spans, DONE_MESSAGE, A_DEVICE, NOTHING, 0},
    [FILL_MESSAGE] = {fill_spans, DONE_MESSAGE, A_DEVICE, NOTHING, 0},
    [COPY_MESSAGE] = {copy_spans, DONE_MESSAGE, A_DEVICE, NOTHING, 0},
    [READ_MESSAGE] = {read_spans, CONTENTS_MESSAGE, A_DEVICE, NOTHING, 0},
    [READ_FILES_MESSAGE] = {read_files, CONTENTS_MESSAGE, ANYTHING, NOTHING, 0},
    [KEEP_MESSAGE] = {keep_data, DONE_MESSAGE, A_DEVICE, NOTHING, 0},
    [CHECK_MESSAGE] = {check_zones, CHECKED_MESSAGE, A_DEVICE, NOTHING, 0},
    [BUILD_MESSAGE] = {build_program, BUILT_MESSAGE, A_DEVICE, NOTHING, 0},
    [HARVEST_MESSAGE] = {harvest_program, CONTENTS_MESSAGE, A_DEVICE, PROGRAM, offsetof(harvest_message, program)},
    [BIND_MESSAGE] = {bind_kernel, DONE_MESSAGE, A_DEVICE, PROGRAM, offsetof(bind_message, program)},
    [FIRST_LAUNCH_MESSAGE] = {launch_first, TIMED_MESSAGE, A_DEVICE, BOUND, offsetof(first_launch_message, bound)},
    [TIME_PASS_MESSAGE] = {time_pass, TIMED_MESSAGE, A_DEVICE, NOTHING, 0},
    [LOAD_CONTEXT_MESSAGE] = {load_context, LOADED_MESSAGE, A_DEVICE, NOTHING, 0},
    [RUN_CONTEXT_MESSAGE] = {run_context, RAN_MESSAGE, A_DEVICE, CONTEXT, offsetof(run_context_message, context)},
    [OPEN_STATE_MESSAGE] = {open_state, DONE_MESSAGE, A_DEVICE, CONTEXT, offsetof(open_state_message, context)},
    [RESET_STATE_MESSAGE] = {reset_state, DONE_MESSAGE, A_DEVICE, STATE, offsetof(reset_state_message, state)},
    [READ_STATE_MESSAGE] = {read_state, CONTENTS_MESSAGE, A_DEVICE, STATE, offsetof(read_state_message, state)},
    [BEGIN_PROFILE_MESSAGE] = {begin_profile, DONE_MESSAGE, NO_PROFILE, CONTEXT,
                               offsetof(begin_profile_message, context)},
    [END_PROFILE_MESSAGE] = {end_profile, CONTENTS_MESSAGE, A_PROFILE, NOTHING, 0},
    [SET_VOTES_MESSAGE] = {set_votes, STEERED_MESSAGE, ANYTHING, NOTHING, 0},
    [VOTE_MESSAGE] = {cast_vote, DONE_MESSAGE, ANYTHING, NOTHING, 0},
};

bool say(session *session, message_kind kind, const void *row) {
    frame_error error = {.limit = NULL};
    outgoing *const out = &session->outgoing;
    put_message(out, kind, session->id, row);
    const frame frame = {{out->data, out->nbytes}, out->blobs, out->blob_count};
    frame_mac *const mac = session->frames.mac ? &session->out : NULL;
    const bool said = !out->failed && write_frame(session->descriptor, mac, &session->limits, &frame, &error);
    session->is_too_large = out->failed || error.limit;
    return said;
}

/* Receives a message of a kind. What it says lies in the session's pool. */
static bool hear(session *session, message_kind first, message_kind last, message *found) {
    frame frame;
    gputune_error error;
    pool_free(&session->pool);
    if (read_frame(&session->frames, session->descriptor, &frame) != FRAME_WHOLE) return false;
    reader reader = {.pool = &session->pool, .error = &error, .path = "a message"};
    reader.malformed = GPUTUNE_INVALID_ARGUMENT;
    const bool read = take_message(&reader, &frame, first, last, found);
    pool_free(&reader.scratch);
    return read;
}

static hello_texts texts_of(const hello_message *hello, char protocol[24]) {
    snprintf(protocol, 24, "%llu", (unsigned long long)hello->protocol);
    return (hello_texts){protocol, hello->software, hello->nonce, hello->authentication, hello->salt};
}

/* Asks the process that listens for a place. */
static bool introduce(int channel, const begin_message *begin, admission *told) {
    introduction said = {"", ""};
    if (!are_digits(begin->session, SESSION_DIGITS)) return false;
    strcpy(said.session, begin->session);
    if (are_digits(begin->earlier, SESSION_DIGITS)) strcpy(said.earlier, begin->earlier);
    const bool answered = write(channel, &said, sizeof said) == sizeof said &&
                          recv(channel, told, sizeof *told, MSG_WAITALL) == sizeof *told;
    close(channel); /* nothing that drivers start has it */
    return answered;
}

/* The other side knows the token, and has a place if that is said here. */
static bool enter(session *session, int channel) {
    message said;
    admission told;
    if (!hear(session, BEGIN_MESSAGE, BEGIN_MESSAGE, &said) || !introduce(channel, said.row, &told)) return false;
    session->frames.limits = LIMITS;
    session->id = said.id;
    if (told.admitted) return say(session, GREETING_MESSAGE, &(greeting_message){told.ended});
    char text[128];
    snprintf(text, sizeof text, "the agent serves %d connections already; try again later", MOST_CONNECTIONS);
    say(session, FAILED_MESSAGE, &(failed_message){"device_limits", text});
    return false;
}

/* Nothing of the agent but its hello is told before the proof, and the proof's MAC is checked before it is read. */
static bool greet(session *session, int channel, const uint8_t stretched[KEY_BYTES], const char *salt) {
    char nonce[NONCE_DIGITS + 1], theirs[24], mine[24];
    uint8_t key[KEY_BYTES];
    gputune_error error;
    message said;
    if (!hear(session, HELLO_MESSAGE, HELLO_MESSAGE, &said) || fresh_digits(nonce, NONCE_DIGITS, &error)) return false;
    const hello_message hello = {AGENT_VERSION, GPUTUNE_AGENT_SOFTWARE, nonce, "token", salt}, *client = said.row;
    if (!say(session, HELLO_MESSAGE, &hello) || client->protocol != AGENT_VERSION) return false;
    if (!are_digits(client->nonce, NONCE_DIGITS) || strcmp(client->authentication, "token")) return false;
    const hello_texts one = texts_of(client, theirs), other = texts_of(&hello, mine);
    frame_key(stretched, "client", &one, &other, key);
    mac_open(&session->in, key);
    frame_key(stretched, "server", &one, &other, key);
    mac_open(&session->out, key);
    memset(key, 0, sizeof key);
    session->frames.mac = &session->in;
    return hear(session, PROOF_MESSAGE, PROOF_MESSAGE, &said) && enter(session, channel);
}

static const char *status_of(gputune_code code) {
    if (code >= GPUTUNE_NOT_A_CONTEXT && code <= GPUTUNE_FILE_CHANGED) return gputune_code_name(code);
    if (code == GPUTUNE_BUILD_FAILED) return "compile";
    if (code == GPUTUNE_INVALID_LAUNCH) return "constraints";
    return code == GPUTUNE_LIMIT_EXCEEDED || code == GPUTUNE_OUT_OF_MEMORY ? "device_limits" : "runtime";
}

/* What is missing for a request, or NULL. */
static const char *missing(const session *session, state state) {
    const char *const no_device = session->device ? NULL : "no device is open";
    switch (state) {
    case NO_DEVICE: return session->device ? "a device is open already" : NULL;
    case NO_PROFILE: return session->profile ? "a profile is open already" : no_device;
    case A_DEVICE: return no_device;
    case A_PROFILE: return session->profile ? NULL : "no profile is open";
    case ANYTHING: break;
    }
    return NULL;
}

gputune_code carry_out(session *session, message_kind kind, const void *asked, void *reply, gputune_error *error) {
    const char *const why = missing(session, ANSWERS[kind].state);
    const void *const handle = (const uint8_t *)asked + ANSWERS[kind].handle;
    if (why) return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s", why);
    if (ANSWERS[kind].of)
        TRY(object_of(session, *(const uint64_t *)handle, ANSWERS[kind].of, &session->named, error));
    return ANSWERS[kind].answer(session, asked, reply, error);
}

static bool answer(session *session, const message *asked) {
    gputune_error error;
    gputune_code code = GPUTUNE_OK;
    const message_kind kind = ANSWERS[asked->kind].reply;
    session->id = asked->id;
    session->said = NULL;
    void *const reply = reply_rows(session, 1, MESSAGES[kind]->row_bytes, &code, &error);
    if (!code) code = carry_out(session, asked->kind, asked->row, reply, &error);
    const failed_message failed = {status_of(code), session->said ? session->said : error.message},
                         large = {"device_limits", "the reply is larger than a message may be"};
    bool sent = say(session, code ? FAILED_MESSAGE : kind, code ? (const void *)&failed : reply);
    if (!sent && session->is_too_large) sent = say(session, FAILED_MESSAGE, &large);
    free(session->contents);
    session->contents = NULL;
    return sent;
}

static void turn_away(int number) { (void)number, _exit(STRANGER); }

int serve(int descriptor, int channel, const uint8_t stretched[KEY_BYTES], const char *salt) {
    session *const session = calloc(1, sizeof *session);
    message asked;
    if (!session) return EXIT_FAILURE;
    session->descriptor = descriptor;
    session->limits = LIMITS;
    reader_open(&session->frames, &HANDSHAKE_LIMITS);
    signal(SIGALRM, turn_away);
    alarm(PROOF_SECONDS);
    const bool greeted = greet(session, channel, stretched, salt);
    alarm(0);
    while (greeted && hear(session, LIST_DEVICES_MESSAGE, VOTE_MESSAGE, &asked) && answer(session, &asked));
    if (session->device) forget_all(session);
    close_runner(session);
    gputune_close_votes(session->votes);
    gputune_close_device(session->device);
    gputune_close_device(session->listed);
    reader_close(&session->frames);
    pool_free(&session->pool);
    free(session->outgoing.data);
    free(session);
    return greeted ? EXIT_SUCCESS : STRANGER;
}
