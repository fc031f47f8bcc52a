"""Say what a user can do about an error.

The advice covers each error with which a target may end a command (docs/operating.md says more), and model nodes that
cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gputune.client.errors import GputuneError, TargetError, UnsupportedNodes

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        # before or during the handshake
        "bad_address": "write HOST:PORT, for example 127.0.0.1:22598 or [::1]:22598, unix:PATH or agent:HOST:PORT",
        "contradiction": "give one of the two options",
        "unreachable": "start `gputune target-server` there; reach it by `adb forward` or `ssh -L`",
        "not_a_target_server": "another program has this port, or one side uses TLS and the other does not: "
        "check the port, --tls_ca and --tls_cert",
        "server_not_started": "run `gputune target-server` by hand: it says why",
        "no_agent": "see whether gputune-agent runs there, on this port and with this token",
        "no_agent_device": "run `gputune-agent --check` on that machine: it says what its OpenCL lacks",
        "no_device": "`gputune doctor` says what is wrong with each driver",
        "version_mismatch": "install the same gputune on both sides",
        "token_required": "give the server's token with --token_file or GPUTUNE_TOKEN",
        "token_unused": "start the server with its token, or drop --token_file and GPUTUNE_TOKEN; if the server "
        "should have one, another user's program may listen on this port",
        "authentication_failed": "compare the two token files: both sides need the same token",
        "bad_mac": "find out what changes bytes between here and the server; reach it by `ssh -L` or TLS",
        "wrong_user": "run the command as the user that the server runs as, or start a server of your own where only "
        "you can make files, such as unix:$XDG_RUNTIME_DIR/gputune.socket",
        "too_many_connections": "wait until another client is done, or stop one",
        "device_unavailable": "look into the server's log: its driver does not recover; start the server again",
        "stopping": "wait until the server is started again",
        "tls_failed": "check --tls_ca, --tls_cert and --tls_key, and that the certificate names the host of --target",
        # over adb
        "adb_missing": "install Debian's adb, or Android's platform tools, and put it on the PATH",
        "adb_failed": "run `adb kill-server`, plug the device in again and try once more",
        "adb_no_device": "switch USB debugging on in its developer options, plug it in, look at `adb devices`",
        "adb_port_taken": "give its token by GPUTUNE_TOKEN with --adb_python termux, or end what uses that port there",
        "adb_several_devices": "name one: --adb SERIAL",
        "adb_unauthorized": "unlock it and allow USB debugging for this computer",
        "adb_offline": "run `adb reconnect offline`, or plug it in again",
        "adb_not_ready": "docs/adb.md says what each state asks for",
        "adb_python": "docs/adb.md says how to build an agent for a device, or which Python it needs",
        # later
        "connection_lost": "look whether the server runs, and why it ended: its log, `dmesg`, the phone's battery",
        "lost_again": "the same request ended the server twice: look into the server's log",
        "device_changed": "another device answers at this address: start the command again",
        "limit_exceeded": "the message names the limit; such a request needs another server or a smaller model",
        "bad_context": "make the context for this device, or drop strict compatibility",
        "no_contexts": "the message says what to install on the target's machine",
        "build_failed": "the message contains the compiler's output; another driver version may accept the source",
        "launch_failed": "the message says what the driver refused; look at the device's free memory",
        "worker_died": "look into the server's log for the signal; SIGKILL often means that memory ran out",
        "worker_timeout": "the device did not finish in time: look whether something else keeps it busy",
        "cancelled": "nothing: the client itself gave up the request",
        "unknown_source": "start the command again; if it happens again, report it",
        "unknown_buffer": "start the command again; if it happens again, report it",
        "unknown_memory": "start the command again; if it happens again, report it",
        "not_on_this_connection": "start the server with --unix PATH and use --target unix:PATH",
        "unusable_memory": "the message says what the descriptor is; use one from MemHandle.allocate, or seal yours",
        "bad_descriptor": "install the same gputune on both sides; if they are, report it",
        "unknown_context": "start the command again; if it happens again, report it",
        "unknown_state": "begin anew with another state; look into the server's log if a worker has crashed",
        "no_states": "update gputune on the target's machine, or give what is remembered as arrays",
        "bad_frame": "install the same gputune on both sides; if they are, report it",
        "bad_message": "install the same gputune on both sides; if they are, report it",
        "unexpected_message": "install the same gputune on both sides; if they are, report it",
        "internal_error": "report it with the server's log",
        # in a farm
        "device_busy": "wait until that job is done (`gputune farm jobs`), or drain the device",
        "unhealthy": "run `gputune doctor` on the device's machine; a driver that builds nothing is left out of a farm",
    }
)
UNKNOWN = "look into the server's log"


_SAY_IT_THEMSELVES = frozenset(
    {
        *("bad_address", "contradiction", "unreachable", "not_a_target_server", "server_not_started", "tls_failed"),
        *("version_mismatch", "token_required", "token_unused", "authentication_failed", "too_many_connections"),
        *("adb_port_taken", "adb_unauthorized", "adb_offline", "adb_not_ready", "adb_python"),
        *("device_changed", "cancelled", "no_contexts"),
    }
)
"""Errors whose own line knows better what to do, because it knows more than the name."""


def advice_for(name: str) -> str:
    """Return what to do about the error of this name."""
    return ADVICE.get(name, UNKNOWN)


def line_of(error: GputuneError) -> str:
    """Return the error with what to do, in one line, which ends with the name of a target's error."""
    if isinstance(error, UnsupportedNodes):
        from gputune.client.model.nearest import line_with_advice  # needs onnx, and most commands do not

        return line_with_advice(error)
    if not isinstance(error, TargetError) or error.name in _SAY_IT_THEMSELVES or error.name not in ADVICE:
        return str(error)
    return f"{error.reason}; {ADVICE[error.name]} [{error.name}]"
