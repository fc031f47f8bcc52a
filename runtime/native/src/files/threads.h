/* Mutexes, conditions and threads, as far as they are used here: over POSIX threads. */
#ifndef GPUTUNE_THREADS_H
#define GPUTUNE_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

uint64_t now_ns(void);   /* now.c; of a clock that runs evenly */
double processor_ns(void); /* now.c; of all threads of this process */
size_t processors(void); /* programs.c; that this process may use */

typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
typedef pthread_t thread;

static inline bool mutex_open(mutex *made) { return pthread_mutex_init(made, NULL) == 0; }
static inline void mutex_close(mutex *closed) { pthread_mutex_destroy(closed); }
static inline void mutex_lock(mutex *taken) { pthread_mutex_lock(taken); }
static inline bool mutex_try(mutex *wanted) { return pthread_mutex_trylock(wanted) == 0; }
static inline void mutex_unlock(mutex *left) { pthread_mutex_unlock(left); }

/* A condition whose times are those of now_ns. */
static inline bool condition_open(condition *made) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return false;
    bool good = !pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) && !pthread_cond_init(made, &attributes);
    pthread_condattr_destroy(&attributes);
    return good;
}
static inline void condition_close(condition *closed) { pthread_cond_destroy(closed); }
static inline void condition_tell(condition *told) { pthread_cond_broadcast(told); }
static inline void condition_wait(condition *waited, mutex *held) { pthread_cond_wait(waited, held); }
/* Waits no longer than until a time; it may return earlier for no reason. */
static inline void condition_wait_until(condition *waited, mutex *held, uint64_t at_ns) {
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    pthread_cond_timedwait(waited, held, &at);
}

static inline bool thread_start(thread *made, void *(*run)(void *), void *argument) {
    return pthread_create(made, NULL, run, argument) == 0;
}
static inline void thread_leave(thread left) { pthread_detach(left); } /* it ends by itself */
static inline void thread_join(thread ended) { pthread_join(ended, NULL); }

#endif
