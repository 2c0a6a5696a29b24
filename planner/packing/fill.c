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

/* The first rank of a new group in a row whose nodes have `free_` ranks left, or -1. Within a node: the node that it
 * fills best. Wider: whole nodes side by side. */
static I place(const Shapes *s, I shape, I *free_)
{
    I degree = s->degree[shape], begin = s->first_node[shape], end = s->end_node[shape];
    I per_node = s->node_size[begin];
    if (degree <= per_node) {
        I best = -1;
        for (I node = begin; node < end; node++)
            if (free_[node] >= degree && (best < 0 || free_[node] < free_[best])) best = node;
        if (best < 0) return -1;
        I first = s->node_first[best] + s->node_size[best] - free_[best];
        free_[best] -= degree;
        return first;
    }
    I left = degree, run = begin;
    for (I node = begin; node < end; node++) {
        if (free_[node] < s->node_size[node]) { left = degree; run = node + 1; continue; }
        left -= s->node_size[node];
        if (left > 0) continue;
        for (I taken = run; taken < node; taken++) free_[taken] = 0;
        free_[node] = -left;
        return s->node_first[run];
    }
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
    I groups = 0, smallest = items ? size[items - 1] : 0, result = -2;
    I *lists = malloc((size_t)(s->shapes * items + 1) * sizeof(I)), *counts = calloc((size_t)s->shapes, sizeof(I));
    I *room = malloc((size_t)(items + 1) * sizeof(I)), *free_ = malloc((size_t)(rows * s->nodes) * sizeof(I));
    double *left = malloc((size_t)(items + 1) * sizeof(double));
    if (!lists || !counts || !room || !free_ || !left) goto done;
    for (I row = 0; row < rows; row++) memcpy(free_ + row * s->nodes, s->node_size, (size_t)s->nodes * sizeof(I));
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
                for (I shape = 0; shape < s->shapes && first < 0; shape++)
                    if (takes[shape] <= span[row] - s->constant[shape]) {
                        first = place(s, shape, free_ + row * s->nodes);
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
    free(lists); free(counts); free(room); free(free_); free(left);
    return result;
}
