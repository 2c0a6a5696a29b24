/* Longest-first fills: the hot loops of packing. fill_python.py is the twin of `planner_fill`, stream_fill.py that of
 * `planner_fill_streams`, line by line, and they give the same result bit for bit: no fused multiply-add
 * (-ffp-contract=off), the same order of operations, the same ties. fill.py and stream_fill.py say what they do.
 *
 * Everything is an array of the caller's; the only memory of its own are the open groups, sorted by the time they have
 * left, one list for each shape.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t I;

typedef struct {
    I shapes, nodes;
    const I *degree, *room, *first_node, *end_node;        /* of each shape: its pool's nodes are [first, end) */
    const double *constant;                                /* of each shape: seconds however little a group holds */
    const I *node_first, *node_size;                       /* of each node: its first rank, and how many it has */
} Shapes;

/* The ranks of one micro-batch that are taken; all zero at first. Ranks are never given back, so each node is looked at
 * a few times, however many groups there are. What is one for each pool stands at the pool's first node. */
typedef struct {
    I *taken;             /* of each node */
    I *partial, *count;   /* of each pool: nodes with ranks both taken and free, by (free, node), and how many */
    I *whole;             /* of each pool: so many of its first nodes are not whole */
    I *run;               /* of each shape: at so many of its first nodes begins no run that is long enough */
} Row;

static I free_of(const Shapes *s, const Row *row, I node) { return s->node_size[node] - row->taken[node]; }

/* Where a node with `left` free ranks belongs among the partial ones of its pool. */
static I node_position(const Shapes *s, const Row *row, I begin, I left, I node)
{
    I low = 0, high = row->count[begin];
    while (low < high) {
        I middle = (low + high) / 2, other = row->partial[begin + middle], free_ = free_of(s, row, other);
        if (free_ < left || (free_ == left && other < node)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Take `more` ranks of a node of the pool that begins there. */
static void take(const Shapes *s, Row *row, I begin, I node, I more)
{
    I *list = row->partial + begin, *count = row->count + begin;
    if (row->taken[node]) {
        I at = node_position(s, row, begin, free_of(s, row, node), node);
        memmove(list + at, list + at + 1, (size_t)(*count - at - 1) * sizeof(I));
        (*count)--;
    }
    row->taken[node] += more;
    I left = free_of(s, row, node);
    if (!left) return;
    I at = node_position(s, row, begin, left, node);
    memmove(list + at + 1, list + at, (size_t)(*count - at) * sizeof(I));
    list[at] = node;
    (*count)++;
}

/* The node with fewest free ranks that are enough, of equal ones the first, or -1. */
static I best_fit(const Shapes *s, Row *row, I degree, I begin, I end)
{
    I at = node_position(s, row, begin, degree, -1), last = end - 1, size = s->node_size[last];
    int is_short = size < s->node_size[begin] && !row->taken[last] && size >= degree;
    if (at < row->count[begin]) {
        I partial = row->partial[begin + at];
        return is_short && size < free_of(s, row, partial) ? last : partial;
    }
    if (is_short) return last;
    I node = begin + row->whole[begin];
    while (node < end && row->taken[node]) node++;
    row->whole[begin] = node - begin;
    return node < end && s->node_size[node] >= degree ? node : -1;
}

/* The first rank of a new group in a row, or -1. Within a node: the node that it fills best. Wider: whole nodes side by
 * side. */
static I place(const Shapes *s, I shape, Row *row)
{
    I degree = s->degree[shape], begin = s->first_node[shape], end = s->end_node[shape];
    if (degree <= s->node_size[begin]) {
        I best = best_fit(s, row, degree, begin, end);
        if (best < 0) return -1;
        I first = s->node_first[best] + row->taken[best];
        take(s, row, begin, best, degree);
        return first;
    }
    I left = degree, run = begin + row->run[shape];
    for (I node = run; node < end; node++) {
        if (row->taken[node]) { left = degree; run = node + 1; continue; }
        left -= s->node_size[node];
        if (left > 0) continue;
        for (I taken = run; taken < node; taken++) row->taken[taken] = s->node_size[taken];
        take(s, row, begin, node, s->node_size[node] + left);
        row->run[shape] = node + 1 - begin;
        return s->node_first[run];
    }
    row->run[shape] = end - begin;
    return -1;
}

/* Where a group with `left` seconds belongs in a list that rises by (seconds left, number). */
static I position(const I *list, I count, const double *left, double seconds, I number)
{
    I low = 0, high = count;
    while (low < high) {
        I middle = (low + high) / 2, other = list[middle];
        if (left[other] < seconds || (left[other] == seconds && other < number)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void insert(I *list, I *count, const double *left, I number)
{
    I at = position(list, *count, left, left[number], number);
    memmove(list + at + 1, list + at, (size_t)(*count - at) * sizeof(I));
    list[at] = number;
    (*count)++;
}

/* Returns how many groups there are, or -1 when some item finds no room, or -2 without memory. */
I planner_fill(I items, I rows, const I *size, const double *seconds, const double *span, const I *row_order,
               const Shapes *s, I *group_of, I *group_shape, I *group_row, I *group_first, double *used)
{
    I groups = 0, smallest = items ? size[items - 1] : 0, result = -2, each = 4 * s->nodes + s->shapes;
    I *lists = malloc((size_t)(s->shapes * items + 1) * sizeof(I)), *counts = calloc((size_t)s->shapes, sizeof(I));
    I *room = malloc((size_t)(items + 1) * sizeof(I)), *ranks = calloc((size_t)(rows * each), sizeof(I));
    double *left = malloc((size_t)(items + 1) * sizeof(double));
    if (!lists || !counts || !room || !ranks || !left) goto done;
    result = -1;
    for (I item = 0; item < items; item++) {
        const double *takes = seconds + item * s->shapes;
        I best = -1, at = -1;
        double least = INFINITY;
        for (I shape = 0; shape < s->shapes; shape++) {
            if (isinf(takes[shape])) continue;
            const I *list = lists + shape * items;
            I i = position(list, counts[shape], left, takes[shape], -1);
            while (i < counts[shape] && room[list[i]] < size[item]) i++;
            if (i == counts[shape]) continue;
            double rest = (left[list[i]] - takes[shape]) * (double)s->degree[shape];
            if (rest < least) { least = rest; best = shape; at = i; }
        }
        I group;
        if (best >= 0) {
            I *list = lists + best * items;
            group = list[at];
            memmove(list + at, list + at + 1, (size_t)(counts[best] - at - 1) * sizeof(I));
            counts[best]--;
        } else {
            I first = -1, row = 0;
            for (I i = 0; i < rows && first < 0; i++) {
                row = row_order[i];
                I *own = ranks + row * each;
                Row open = {own, own + s->nodes, own + 2 * s->nodes, own + 3 * s->nodes, own + 4 * s->nodes};
                for (I shape = 0; shape < s->shapes && first < 0; shape++)
                    if (takes[shape] <= span[row] - s->constant[shape]) {
                        first = place(s, shape, &open);
                        best = shape;
                    }
            }
            if (first < 0) goto done;
            group = groups++;
            group_shape[group] = best;
            group_row[group] = row;
            group_first[group] = first;
            left[group] = span[row] - s->constant[best];
            room[group] = s->room[best];
            used[group] = s->constant[best];
        }
        left[group] -= takes[best];
        used[group] += takes[best];
        room[group] -= size[item];
        group_of[item] = group;
        if (room[group] >= smallest) insert(lists + best * items, &counts[best], left, group);
    }
    result = groups;
done:
    free(lists); free(counts); free(room); free(ranks); free(left);
    return result;
}

/* ------------------------------------------------------------------ ranks that synchronise once per step (stream_fill.py) */

/* Free ranks, as segments of a node. A segment is known by its first rank. */
typedef struct {
    I *ranks, *at;        /* of each segment: how many ranks (0: there is none), and its place in the list of its pool */
    double *left;         /* of each segment: seconds for which it stays free */
    I *list, *count;      /* of each pool, from its first rank on: its segments, and how many */
} Free;

static I first_rank_of(const Shapes *s, I shape) { return s->node_first[s->first_node[shape]]; }

static void give(Free *f, I pool, I first, I ranks, double left)
{
    f->ranks[first] = ranks;
    f->left[first] = left;
    f->at[first] = f->count[pool];
    f->list[pool + f->count[pool]++] = first;
}

static void drop(Free *f, I pool, I first)
{
    I last = f->list[pool + --f->count[pool]];
    f->list[pool + f->at[first]] = last;
    f->at[last] = f->at[first];
    f->ranks[first] = 0;
}

/* Nodes side by side from which a group wider than a node can take its ranks: the first of them, or -1. */
static I adjacent_nodes(const Shapes *s, const Free *f, I shape, double needed)
{
    I run = s->first_node[shape], have = 0;
    for (I node = run; node < s->end_node[shape]; node++) {
        I first = s->node_first[node], ranks = f->ranks[first];
        if (!ranks || f->left[first] < needed) { have = 0; continue; }
        if (!have) run = node;
        have += ranks;
        if (have >= s->degree[shape]) return run;
        if (ranks < s->node_size[node]) have = 0;
    }
    return -1;
}

/* The first rank of a group that needs so many seconds, or -1; `left`: for how long all of its ranks are free. */
static I allocate(const Shapes *s, Free *f, I shape, double needed, double *left)
{
    I degree = s->degree[shape], pool = first_rank_of(s, shape), last = -1, first, rest;
    if (degree > s->node_size[s->first_node[shape]]) {
        I node = adjacent_nodes(s, f, shape, needed);
        if (node < 0) return -1;
        first = s->node_first[node];
        *left = INFINITY;
        for (last = first; ; last = s->node_first[++node]) {
            if (f->left[last] < *left) *left = f->left[last];
            rest = last + f->ranks[last] - first - degree;
            drop(f, pool, last);
            if (rest >= 0) break;
        }
    } else {
        for (I i = 0; i < f->count[pool]; i++) {
            I other = f->list[pool + i];
            if (f->left[other] < needed || f->ranks[other] < degree) continue;
            if (last < 0 || f->left[other] < f->left[last]
                || (f->left[other] == f->left[last]
                    && (f->ranks[other] < f->ranks[last] || (f->ranks[other] == f->ranks[last] && other < last))))
                last = other;
        }
        if (last < 0) return -1;
        first = last;
        *left = f->left[last];
        rest = f->ranks[last] - degree;
        drop(f, pool, last);
    }
    if (rest) give(f, pool, first + degree, rest, f->left[last]);
    return first;
}

static void release(const Shapes *s, Free *f, I shape, I first, I degree, double left)
{
    for (I node = s->first_node[shape]; node < s->end_node[shape]; node++) {
        I low = s->node_first[node], high = low + s->node_size[node];
        if (low < first) low = first;
        if (high > first + degree) high = first + degree;
        if (low < high) give(f, first_rank_of(s, shape), low, high - low, left);
    }
}

/* Groups of ranks and their micro-batches. */
typedef struct {
    I items, streams, batches;
    I *lists, *counts;                      /* of each shape: its open streams, rising by the seconds that they have left */
    I *shape, *first, *number, *most, *begin, *end;  /* of each stream; number, first and last of its micro-batches */
    double *left;                           /* of each stream: seconds */
    I *room, *next, *index, *filled;        /* of each micro-batch: tokens left, the next one, its index, whether it has items */
} Streams;

static void begin_micro_batch(const Shapes *s, Streams *t, I stream)
{
    I shape = t->shape[stream], batch = t->batches++;
    t->left[stream] -= s->constant[shape];
    t->room[batch] = t->most[stream] = s->room[shape];
    t->next[batch] = -1;
    t->filled[batch] = 0;
    t->index[batch] = t->number[stream]++;
    if (t->index[batch]) t->next[t->end[stream]] = batch;
    else t->begin[stream] = batch;
    t->end[stream] = batch;
}

/* The micro-batch that an item is added to: one that was just begun, otherwise the one that it fills best. */
static I add_item(Streams *t, I stream, I size, double seconds)
{
    I at = t->end[stream], most = 0;
    if (t->filled[at])
        for (I batch = t->begin[stream], best = -1; batch >= 0; batch = t->next[batch])
            if (t->room[batch] >= size && (best < 0 || t->room[batch] < t->room[best])) at = best = batch;
    t->filled[at] = 1;
    t->room[at] -= size < t->room[at] ? size : t->room[at];
    for (I batch = t->begin[stream]; batch >= 0; batch = t->next[batch])
        if (t->room[batch] > most) most = t->room[batch];
    t->most[stream] = most;
    t->left[stream] -= seconds;
    return t->index[at];
}

/* A new stream on free ranks, of the first of these shapes that fits, or -1; shapes end with -1. */
static I open_stream(const Shapes *s, Free *f, Streams *t, const I *shapes, I count, const double *takes)
{
    for (I i = 0; i < count && shapes[i] >= 0; i++) {
        double left;
        I shape = shapes[i], first = allocate(s, f, shape, takes[shape] + s->constant[shape], &left);
        if (first < 0) continue;
        I stream = t->streams++;
        t->shape[stream] = shape;
        t->first[stream] = first;
        t->left[stream] = left;
        t->number[stream] = 0;
        begin_micro_batch(s, t, stream);
        return stream;
    }
    return -1;
}

/* A new stream on ranks of a wider one, the one with most time left, or -1. */
static I split_wider(const Shapes *s, Free *f, Streams *t, const I *shapes, const double *takes)
{
    for (I i = 0; i < s->shapes && shapes[i] >= 0; i++) {
        I shape = shapes[i], wider = -1;
        for (I other = 0; other < s->shapes; other++) {
            if (s->first_node[other] != s->first_node[shape] || s->degree[other] <= s->degree[shape]) continue;
            if (!t->counts[other]) continue;
            I last = t->lists[other * t->items + t->counts[other] - 1];
            if (wider < 0 || t->left[last] > t->left[wider] || (t->left[last] == t->left[wider] && last > wider))
                wider = last;
        }
        if (wider < 0 || t->left[wider] < takes[shape] + s->constant[shape]) continue;
        t->counts[t->shape[wider]]--;
        release(s, f, shape, t->first[wider], s->degree[t->shape[wider]], t->left[wider]);
        return open_stream(s, f, t, shapes + i, 1, takes);
    }
    return -1;
}

/* Returns how many streams there are, or -1 when some item finds no room, or -2 without memory. `shapes`: of each item,
 * those that may hold it, the cheapest first, ended by -1. */
I planner_fill_streams(I items, const I *order, const I *size, const double *seconds, const I *shapes, double span,
                       double new_micro_batch_weight, double excess_constants, I open_first, const Shapes *s,
                       I *stream_of, I *micro_batch_of, I *stream_shape, I *stream_first)
{
    I ranks = 1, result = -2, n = s->shapes;
    for (I node = 0; node < s->nodes; node++)
        if (s->node_first[node] + s->node_size[node] > ranks) ranks = s->node_first[node] + s->node_size[node];
    I *own = calloc((size_t)(4 * ranks + (n + 8) * (items + 1) + n), sizeof(I));
    double *lefts = malloc((size_t)(ranks + items + 1) * sizeof(double));
    if (!own || !lefts) goto done;
    Free free_ = {own, own + ranks, lefts, own + 2 * ranks, own + 3 * ranks};
    I *of = own + 4 * ranks, each = items + 1;
    Streams t = {each, 0, 0, of + 8 * each, of + (8 + n) * each, stream_shape, stream_first, of, of + each, of + 2 * each,
                 of + 3 * each, lefts + ranks, of + 4 * each, of + 5 * each, of + 6 * each, of + 7 * each};
    for (I shape = 0; shape < n; shape++)
        for (I node = s->first_node[shape]; node < s->end_node[shape]; node++)
            if (!free_.ranks[s->node_first[node]])
                give(&free_, first_rank_of(s, shape), s->node_first[node], s->node_size[node], span);
    result = -1;
    for (I i = 0; i < items; i++) {
        I item = order[i], best = -1, place = -1, begins = 0, stream = -1;
        const I *may = shapes + item * n;
        const double *takes = seconds + item * n;
        double least = INFINITY, cheapest = INFINITY, constant = INFINITY;
        for (I k = 0; k < n && may[k] >= 0; k++) {
            I shape = may[k], *list = t.lists + shape * each, count = t.counts[shape];
            double degree = (double)s->degree[shape];
            if (takes[shape] * degree < cheapest) cheapest = takes[shape] * degree;
            if (s->constant[shape] * degree < constant) constant = s->constant[shape] * degree;
            for (I new_ = 0; new_ < 2; new_++) {
                I at = position(list, count, t.left, new_ ? takes[shape] + s->constant[shape] : takes[shape], -1);
                while (!new_ && at < count && t.most[list[at]] < size[item]) at++;
                if (at == count) continue;
                double waste = t.left[list[at]] - takes[shape];
                if (new_) waste = waste - s->constant[shape] + new_micro_batch_weight * s->constant[shape];
                waste *= degree;
                if (best >= 0 && (waste > least || (waste == least && (at > place || (at == place && shape >= best)))))
                    continue;
                least = waste;
                place = at;
                best = shape;
                begins = new_;
            }
        }
        if (best < 0 || (begins && open_first)
            || takes[best] * (double)s->degree[best] - cheapest > excess_constants * constant)
            stream = open_stream(s, &free_, &t, may, n, takes);
        if (stream < 0 && best < 0) stream = split_wider(s, &free_, &t, may, takes);
        if (stream < 0) {
            if (best < 0) goto done;
            I *list = t.lists + best * each;
            stream = list[place];
            memmove(list + place, list + place + 1, (size_t)(t.counts[best] - place - 1) * sizeof(I));
            t.counts[best]--;
            if (t.most[stream] < size[item]) begin_micro_batch(s, &t, stream);
        }
        stream_of[item] = stream;
        micro_batch_of[item] = add_item(&t, stream, size[item], takes[stream_shape[stream]]);
        insert(t.lists + stream_shape[stream] * each, &t.counts[stream_shape[stream]], t.left, stream);
    }
    result = t.streams;
done:
    free(own); free(lefts);
    return result;
}
