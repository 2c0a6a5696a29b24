/* The event clock: a discrete-event simulation of activities. clock.py is the reference and documents each part; both
 * give the same starts, ends and causes, bit for bit: the same operations in the same order, no fused multiply-add
 * (-ffp-contract=off).
 *
 * All arrays are allocated with their final lengths.
 */
#include <stdint.h>
#include <stdlib.h>

typedef int64_t I;
static const double ROUNDING = 1e-9;
enum { NO_ACTIVITY = -1, ABSENT = -1, HELD = 40 };

typedef struct { const I *first, *of; } Lists;             /* the list of i is of[first[i]] … of[first[i + 1] - 1] */

typedef struct {
    I count, lane_count;
    const double *seconds, *share;
    const I *queued_by, *sharer;
    Lists lanes, after;
} Activities;

typedef struct { I *first, *of, *head, *tail; } Queues;    /* FIFO; each allocated at its greatest length */

typedef struct {
    const Activities *a;
    double *starts, *ends;
    I *causes;
    uint8_t *ended;
    I *blocked;                                            /* number of lanes and activities that each waits for */
    Lists followers, queued;
    Queues lanes;
    double *free;                                          /* of each lane */
    I *sharers, *sharer_in;                                /* number of sharers in each lane, and which */
    I *heap, size;                                         /* heap of activities by `when` */
    double *when;
    void *held[HELD];                                      /* all allocations of this run */
    I holds, failed;
} Clock;

static void *memory(Clock *c, I count, size_t size)
{
    void *found = c->holds < HELD ? calloc((size_t)count + 1, size) : NULL;
    if (found) c->held[c->holds++] = found;
    else c->failed = 1;
    return found;
}

/* ------------------------------------------------------------------------------------------------ the next event */

static int before(const Clock *c, I i, I j) { return c->when[i] < c->when[j] || (c->when[i] == c->when[j] && i < j); }

/* Schedule the end of i. */
static void schedule(Clock *c, I i, double when)
{
    I at = c->size++;
    c->when[i] = when;
    for (; at > 0 && before(c, i, c->heap[(at - 1) / 2]); at = (at - 1) / 2) c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = i;
}

static I pop(Clock *c)
{
    I top = c->heap[0], last = c->heap[--c->size], at = 0;
    for (I child = 1; child < c->size; child = 2 * at + 1) {
        if (child + 1 < c->size && before(c, c->heap[child + 1], c->heap[child])) child++;
        if (!before(c, c->heap[child], last)) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return top;
}

/* --------------------------------------------------------------------------------------------------------- lanes */

static void start(Clock *c, I i, double now, I cause)
{
    c->starts[i] = now, c->causes[i] = cause;
    schedule(c, i, now + c->a->seconds[i]);
}

static void unblock(Clock *c, I i, double now, I cause)
{
    if (--c->blocked[i] == 0) start(c, i, now, cause);
}

/* Index of a sharer among those in a lane, or ABSENT. */
static I among(const Clock *c, I lane, I sharer)
{
    for (I k = c->lanes.first[lane]; k < c->lanes.first[lane] + c->sharers[lane]; k++)
        if (c->sharer_in[k] == sharer) return k;
    return ABSENT;
}

static void admit(Clock *c, I lane, double now, I cause)
{
    const Activities *a = c->a;
    while (c->lanes.head[lane] < c->lanes.tail[lane]) {
        I i = c->lanes.of[c->lanes.head[lane]];
        if (a->share[i] > c->free[lane] + ROUNDING || among(c, lane, a->sharer[i]) != ABSENT) return;
        c->lanes.head[lane]++;
        c->free[lane] -= a->share[i];
        if (a->sharer[i] != NO_ACTIVITY) c->sharer_in[c->lanes.first[lane] + c->sharers[lane]++] = a->sharer[i];
        unblock(c, i, now, cause);
    }
}

static void end(Clock *c, I i, double now)
{
    const Activities *a = c->a;
    c->ends[i] = now, c->ended[i] = 1;
    for (I k = c->followers.first[i]; k < c->followers.first[i + 1]; k++) unblock(c, c->followers.of[k], now, i);
    for (I k = c->queued.first[i]; k < c->queued.first[i + 1]; k++) {
        I j = c->queued.of[k];
        if (a->lanes.first[j] == a->lanes.first[j + 1]) unblock(c, j, now, i);
        for (I l = a->lanes.first[j]; l < a->lanes.first[j + 1]; l++) {
            c->lanes.of[c->lanes.tail[a->lanes.of[l]]++] = j;
            admit(c, a->lanes.of[l], now, i);
        }
    }
    for (I k = a->lanes.first[i]; k < a->lanes.first[i + 1]; k++) {
        I lane = a->lanes.of[k];
        c->free[lane] += a->share[i];
        I at = among(c, lane, a->sharer[i]);
        if (at != ABSENT) c->sharer_in[at] = c->sharer_in[c->lanes.first[lane] + --c->sharers[lane]];
        admit(c, lane, now, i);
    }
}

/* --------------------------------------------------------------------------------------------------------- a run */

/* The inverse of some lists: for each of `keys`, which of `count` lists name it, ascending. NO_ACTIVITY is skipped. */
static Lists inverted(Clock *c, I keys, I count, const I *first, const I *of)
{
    I total = first ? first[count] : count, *begin = memory(c, keys + 1, sizeof(I)), *named = memory(c, total, sizeof(I));
    if (c->failed) return (Lists){0, 0};
    for (I k = 0; k < total; k++)
        if (of[k] != NO_ACTIVITY) begin[of[k] + 1]++;
    for (I key = 0; key < keys; key++) begin[key + 1] += begin[key];
    for (I i = 0; i < count; i++)
        for (I k = first ? first[i] : i; k < (first ? first[i + 1] : i + 1); k++)
            if (of[k] != NO_ACTIVITY) named[begin[of[k]]++] = i;
    for (I key = keys; key > 0; key--) begin[key] = begin[key - 1];
    begin[0] = 0;
    return (Lists){begin, named};
}

/* An empty queue for each of `keys`, with room for all entries that name it. */
static Queues queues(Clock *c, I keys, I count, const Lists *lists)
{
    I total = lists->first[count], *first = memory(c, keys + 1, sizeof(I)), *of = memory(c, total, sizeof(I));
    I *head = memory(c, keys, sizeof(I)), *tail = memory(c, keys, sizeof(I));
    if (c->failed) return (Queues){0, 0, 0, 0};
    for (I k = 0; k < total; k++) first[lists->of[k] + 1]++;
    for (I key = 0; key < keys; key++) { first[key + 1] += first[key]; head[key] = tail[key] = first[key]; }
    return (Queues){first, of, head, tail};
}

static void prepare(Clock *c)
{
    const Activities *a = c->a;
    I n = a->count;
    c->followers = inverted(c, n, n, a->after.first, a->after.of);
    c->queued = inverted(c, n, n, NULL, a->queued_by);
    c->lanes = queues(c, a->lane_count, n, &a->lanes);
    c->blocked = memory(c, n, sizeof(I));
    c->free = memory(c, a->lane_count, sizeof(double));
    c->sharers = memory(c, a->lane_count, sizeof(I));
    c->sharer_in = memory(c, a->lanes.first[n], sizeof(I));
    c->heap = memory(c, n, sizeof(I));
    c->when = memory(c, n, sizeof(double));
}

static void index_waiters(Clock *c)
{
    const Activities *a = c->a;
    for (I lane = 0; lane < a->lane_count; lane++) c->free[lane] = 1.0;
    for (I i = 0; i < a->count; i++) {
        I lanes = a->lanes.first[i + 1] - a->lanes.first[i];
        c->causes[i] = NO_ACTIVITY;
        c->blocked[i] = lanes + a->after.first[i + 1] - a->after.first[i] + (a->queued_by[i] != NO_ACTIVITY && !lanes);
        if (a->queued_by[i] != NO_ACTIVITY) continue;
        for (I k = a->lanes.first[i]; k < a->lanes.first[i + 1]; k++) c->lanes.of[c->lanes.tail[a->lanes.of[k]]++] = i;
    }
}

/* Returns 0, or -1 when out of memory. `starts`, `ends` and `ended` come in as zeros; indices are in range, no
 * activity names a lane twice: compiled_clock.py has checked this. */
I planner_clock(const Activities *a, double *starts, double *ends, I *causes, uint8_t *ended)
{
    Clock clock = {.a = a, .starts = starts, .ends = ends, .causes = causes, .ended = ended}, *c = &clock;
    prepare(c);
    if (!c->failed) {
        index_waiters(c);
        for (I i = 0; i < a->count; i++)
            if (!c->blocked[i]) start(c, i, 0.0, NO_ACTIVITY);
        for (I lane = 0; lane < a->lane_count; lane++) admit(c, lane, 0.0, NO_ACTIVITY);
        while (c->size) {
            I i = pop(c);
            end(c, i, c->when[i]);
        }
    }
    while (c->holds) free(c->held[--c->holds]);
    return c->failed ? -1 : 0;
}
