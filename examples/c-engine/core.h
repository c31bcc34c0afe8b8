/* A toy KV-cache core in C: full attention, a prefix cache, the least recently freed block is reused first. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 4096, MAX_TOKENS = 65536 };

typedef struct {
    int length;      /* tokens up to the end of this block that are cached with it; 0 if none are */
    int *tokens;
    int holders;     /* tables that it stands in */
} Block;

typedef struct {
    int num_blocks, block_size;
    Block blocks[MAX_BLOCKS];
    int free[MAX_BLOCKS], num_free; /* the next block to be reused in front */
} Core;

static void core_reset(Core *core) {
    for (int i = 0; i < MAX_BLOCKS; i++) {
        free(core->blocks[i].tokens);
        core->blocks[i] = (Block){0};
    }
}

static void core_init(Core *core, int num_blocks, int block_size) {
    core_reset(core);
    core->num_blocks = core->num_free = num_blocks;
    core->block_size = block_size;
    for (int i = 0; i < num_blocks; i++) core->free[i] = i;
}

static int core_find(const Core *core, const int *tokens, int length) {
    for (int i = 0; i < core->num_blocks; i++)
        if (core->blocks[i].length == length && !memcmp(core->blocks[i].tokens, tokens, length * sizeof(int))) return i;
    return -1;
}

/* The blocks of the longest cached prefix, into `hit`; their number. At least one token is left to compute. */
static int core_match(const Core *core, const int *tokens, int length, int *hit) {
    int found = 0;
    for (int end = core->block_size; end < length; end += core->block_size) {
        int block = core_find(core, tokens, end);
        if (block < 0) break;
        hit[found++] = block;
    }
    return found;
}

static void take_from_free(Core *core, int place) {
    core->num_free--;
    memmove(&core->free[place], &core->free[place + 1], (core->num_free - place) * sizeof(int));
}

static void forget(Block *block) {
    free(block->tokens);
    block->tokens = NULL;
    block->length = 0;
}

/* Put the hit and as many new blocks as so many tokens need behind a table of `length` blocks. The number of new blocks,
   or -1 if there is no room; then nothing has changed. */
static int core_grow(Core *core, int *table, int length, const int *hit, int num_hit, int num_tokens) {
    int missing = (num_tokens + core->block_size - 1) / core->block_size - length - num_hit, cached = 0;
    if (missing < 0) missing = 0;
    for (int i = 0; i < num_hit; i++) cached += core->blocks[hit[i]].holders == 0; /* these leave the free list, too */
    if (missing + cached > core->num_free) return -1;
    for (int i = 0; i < num_hit; i++) {
        if (core->blocks[hit[i]].holders++ == 0)
            for (int place = 0; place < core->num_free; place++)
                if (core->free[place] == hit[i]) take_from_free(core, place);
        table[length++] = hit[i];
    }
    for (int i = 0; i < missing; i++) {
        int block = core->free[0];
        take_from_free(core, 0);
#ifndef BUG
        forget(&core->blocks[block]); /* it will hold something else */
#endif
        core->blocks[block].holders = 1;
        table[length++] = block;
    }
    return missing;
}

/* Let other requests use the full blocks of these tokens, which are in memory. */
static void core_publish(Core *core, const int *table, const int *tokens, int length) {
    for (int i = 0; i < length / core->block_size; i++) {
        Block *block = &core->blocks[table[i]];
        int end = (i + 1) * core->block_size;
        if (block->length) continue;
        block->tokens = malloc(end * sizeof(int));
        memcpy(block->tokens, tokens, end * sizeof(int));
        block->length = end;
    }
}

/* Give the blocks of a table back, the last one first. */
static void core_release(Core *core, const int *table, int length) {
    while (length-- > 0)
        if (--core->blocks[table[length]].holders == 0) core->free[core->num_free++] = table[length];
}
