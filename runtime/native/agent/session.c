/* Serves a connection: the handshake, then requests, one after the other. */
#include "session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


enum { PROOF_SECONDS = 10 };
static const frame_limits LIMITS = {1u << 30, 512u << 10, MOST_BLOBS};

static const struct {
    handler *answer;
    message_kind reply;
} ANSWERS[MESSAGE_KINDS] = {
    [LIST_DEVICES_MESSAGE] = {list_devices, DEVICES_MESSAGE},
    [OPEN_MESSAGE] = {open_device, OPENED_MESSAGE},
    [ALLOCATE_MESSAGE] = {allocate_buffer, DONE_MESSAGE},
    [FREE_MESSAGE] = {forget, DONE_MESSAGE},
    [WRITE_MESSAGE] = {write_spans, DONE_MESSAGE},
    [FILL_MESSAGE] = {fill_spans, DONE_MESSAGE},
    [COPY_MESSAGE] = {copy_spans, DONE_MESSAGE},
    [READ_MESSAGE] = {read_spans, CONTENTS_MESSAGE},
    [READ_FILES_MESSAGE] = {read_files, CONTENTS_MESSAGE},
    [KEEP_MESSAGE] = {keep_data, DONE_MESSAGE},
    [CHECK_MESSAGE] = {check_zones, CHECKED_MESSAGE},
    [BUILD_MESSAGE] = {build_program, BUILT_MESSAGE},
    [HARVEST_MESSAGE] = {harvest_program, CONTENTS_MESSAGE},
    [BIND_MESSAGE] = {bind_kernel, DONE_MESSAGE},
    [FIRST_LAUNCH_MESSAGE] = {launch_first, TIMED_MESSAGE},
    [TIME_PASS_MESSAGE] = {time_pass, TIMED_MESSAGE},
    [LOAD_CONTEXT_MESSAGE] = {load_context, LOADED_MESSAGE},
    [RUN_CONTEXT_MESSAGE] = {run_context, RAN_MESSAGE},
    [BEGIN_PROFILE_MESSAGE] = {begin_profile, DONE_MESSAGE},
    [END_PROFILE_MESSAGE] = {end_profile, CONTENTS_MESSAGE},
    [SET_VOTES_MESSAGE] = {set_votes, STEERED_MESSAGE},
    [VOTE_MESSAGE] = {cast_vote, DONE_MESSAGE},
};

bool say(session *session, message_kind kind, const void *row) {
    frame_error error;
    outgoing *const out = &session->outgoing;
    put_message(out, kind, session->id, row);
    const frame frame = {{out->data, out->nbytes}, out->blobs, out->blob_count};
    frame_mac *const mac = session->frames.mac ? &session->out : NULL;
    return !out->failed && write_frame(session->descriptor, mac, &session->limits, &frame, &error);
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

/* Nothing of the agent but its hello is told before the proof, and the proof's MAC is checked before it is read. */
static bool greet(session *session, const uint8_t stretched[KEY_BYTES], const char *salt, const char *ended) {
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
    if (!hear(session, PROOF_MESSAGE, PROOF_MESSAGE, &said)) return false;
    session->frames.limits = LIMITS;
    session->id = said.id;
    return say(session, GREETING_MESSAGE, &(greeting_message){ended});
}

static const char *status_of(gputune_code code) {
    if (code >= GPUTUNE_NOT_A_CONTEXT && code <= GPUTUNE_FILE_CHANGED) return gputune_code_name(code);
    if (code == GPUTUNE_BUILD_FAILED) return "compile";
    return code == GPUTUNE_LIMIT_EXCEEDED || code == GPUTUNE_OUT_OF_MEMORY ? "device_limits" : "runtime";
}

static bool answer(session *session, const message *asked) {
    gputune_error error;
    gputune_code code = GPUTUNE_OK;
    const message_kind kind = ANSWERS[asked->kind].reply;
    session->id = asked->id;
    session->said = NULL;
    void *const reply = reply_rows(session, 1, MESSAGES[kind]->row_bytes, &code, &error);
    if (!code) code = ANSWERS[asked->kind].answer(session, asked->row, reply, &error);
    const failed_message failed = {status_of(code), session->said ? session->said : error.message};
    const bool sent = say(session, code ? FAILED_MESSAGE : kind, code ? (const void *)&failed : reply);
    free(session->contents);
    session->contents = NULL;
    return sent;
}

static void turn_away(int number) { (void)number, _exit(STRANGER); }

int serve(int descriptor, const uint8_t stretched[KEY_BYTES], const char *salt, const char *ended) {
    session *const session = calloc(1, sizeof *session);
    message asked;
    if (!session) return EXIT_FAILURE;
    session->descriptor = descriptor;
    session->limits = LIMITS;
    reader_open(&session->frames, &HANDSHAKE_LIMITS);
    signal(SIGALRM, turn_away);
    alarm(PROOF_SECONDS);
    const bool greeted = greet(session, stretched, salt, ended);
    alarm(0);
    while (greeted && hear(session, LIST_DEVICES_MESSAGE, VOTE_MESSAGE, &asked) && answer(session, &asked));
    if (session->device) forget_all(session);
    close_runner(session);
    votes_close(session->votes, true);
    gputune_close_device(session->device);
    gputune_close_device(session->listed);
    reader_close(&session->frames);
    pool_free(&session->pool);
    free(session->outgoing.data);
    free(session);
    return greeted ? EXIT_SUCCESS : STRANGER;
}
