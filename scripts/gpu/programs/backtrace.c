/* Says where in C a process crashes: loading this library is enough. Lines are those of backtrace(3). */
#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static char stack[1 << 16];

static void say(int number)
{
    void *frames[64];
    const char head[] = "C stack:\n";
    (void)!write(2, head, sizeof head - 1);
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void begin(void)
{
    void *frames[1];
    backtrace(frames, 1); /* loads what it needs now, and not in the handler */
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_handler = say, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
}
