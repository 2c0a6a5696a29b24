/* Longest-first fill: the hot loop of packing. fill_python.py is its twin, line by line, and gives the same result bit for bit:
 * no fused multiply-add (-ffp-contract=off), the same order of operations, the same ties. fill.py says what it does.
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
