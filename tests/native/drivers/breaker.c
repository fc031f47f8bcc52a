/* The breaker of persistent.c, on made-up times. */
#include "script.c"

breaker *breaker_new(void) {
    breaker *made = calloc(1, sizeof *made);
    if (made) *made = new_breaker();
    return made;
}

void breaker_free(breaker *breaker) { free(breaker); }

bool breaker_is(const breaker *breaker, const char *what) {
    if (!strcmp(what, "closed")) return breaker->closed;
    if (!strcmp(what, "watchful")) return breaker->watchful;
    return breaker_persistent(breaker);
}

int64_t breaker_wait(const breaker *breaker) { return breaker->wait; }

double breaker_cost_ns(const breaker *breaker) { return cost_of(breaker); }

void breaker_lose(breaker *breaker, double elapsed_ns, double lost_ns) { lose(breaker, elapsed_ns, lost_ns); }

void breaker_add(breaker *breaker, bool persistent, double elapsed_ns) {
    breaker_record(breaker, persistent, elapsed_ns);
}

double usual_after(const double *samples, size_t count) {
    double usual = 0;
    for (size_t i = 0; i < count; i++) add_usual(&usual, samples[i]);
    return usual;
}

double lately_after(const double *samples, size_t count) {
    form form = {.usual = 0};
    for (size_t i = 0; i < count; i++) form.last[form.seen++ % LATELY] = samples[i];
    return lately(&form);
}
