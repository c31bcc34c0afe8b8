/* The core as a target of blockproof, asked over pipes (docs/reference/pipe-protocol.md).
   cc -O1 -o c_target target.c && blockproof fuzz --target program:./c_target --seconds 10

   Block 0 of blockproof is the null block, which this core does not have: ids are shown with 1 added. */

#include <stdio.h>

#include "core.h"

typedef struct Request {
    struct Request *next;
    char name[32];
    int tokens[MAX_TOKENS], length, computed, scheduled;
    int table[MAX_BLOCKS], num_table, hit[MAX_BLOCKS], num_hit;
    bool skip_lookup;
} Request;

static Core core;
static Request *requests;
static int hash_block_size, max_model_len;
static bool caching;

/* Reading. All fields are always there, and blockproof writes no blanks, so a field is found by its name. */

static const char *field(const char *line, const char *name) {
    static char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *found = strstr(line, wanted);
    return found ? found + strlen(wanted) : "";
}

static int number(const char *line, const char *name) { return atoi(field(line, name)); }
static bool flag(const char *line, const char *name) { return !strncmp(field(line, name), "true", 4); }
static bool is(const char *line, const char *op) {
    const char *value = field(line, "op");
    return !strncmp(value + 1, op, strlen(op)) && value[1 + strlen(op)] == '"';
}

static void append_tokens(Request *request, const char *list) {
    for (char *end; *list != ']' && request->length < MAX_TOKENS; list = end) {
        list++; /* the bracket, or a comma */
        int token = (int)strtol(list, &end, 10);
        if (end == list) break;
        request->tokens[request->length++] = token;
    }
}

static Request *request_of(const char *line) {
    char name[32] = "";
    sscanf(field(line, "request"), "\"%31[^\"]", name);
    for (Request *each = requests; each; each = each->next)
        if (!strcmp(each->name, name)) return each;
    return NULL;
}

static void drop(Request *request) {
    for (Request **each = &requests; *each; each = &(*each)->next)
        if (*each == request) {
            *each = request->next;
            free(request);
            return;
        }
}

/* Writing. */

static void show_blocks(const int *blocks, int count) {
    putchar('[');
    for (int i = 0; i < count; i++) printf(i ? ",%d" : "%d", blocks[i] + 1);
    putchar(']');
}

static void show_state(void) {
    printf(",\"snapshot\":{\"free\":");
    show_blocks(core.free, core.num_free);
    printf(",\"num_free\":%d,\"ref_cnt\":[0", core.num_free);
    for (int i = 0; i < core.num_blocks; i++) printf(",%d", core.blocks[i].holders);
    printf("],\"tables\":[{");
    const char *comma = "";
    for (Request *each = requests; each; each = each->next) {
        if (!each->num_table) continue;
        printf("%s\"%s\":", comma, each->name);
        show_blocks(each->table, each->num_table);
        comma = ",";
    }
    printf("}]}}\n");
}

static void done(void) { printf("{\"outcome\":\"Done\""); }
static void done_number(int value) { printf("{\"outcome\":\"Done\",\"value\":%d", value); }
static void done_flag(bool value) { printf("{\"outcome\":\"Done\",\"value\":%s", value ? "true" : "false"); }
static void done_blocks(const int *blocks, int count) { /* of one group */
    printf("{\"outcome\":\"Done\",\"value\":[");
    show_blocks(blocks, count);
    putchar(']');
}

/* Operations: each prints its outcome. */

static bool start(const char *line) {
    bool full = strstr(line, "\"kind\":\"full\"") && !strstr(line, "},{");
    int num_blocks = number(line, "num_blocks") - 1; /* the null block is counted there */
    if (!full || flag(line, "eagle") || num_blocks > MAX_BLOCKS || number(line, "decode_parallel") > 1 ||
        number(line, "prefill_parallel") > 1) {
        printf("{\"outcome\":\"Failed\",\"error\":\"NotImplementedError\",\"message\":\"one group of full attention\"}\n");
        return false;
    }
    while (requests) drop(requests);
    core_init(&core, num_blocks, number(line, "block_size"));
    hash_block_size = number(line, "hash_block_size");
    max_model_len = number(line, "max_model_len");
    caching = flag(line, "caching");
    done();
    return true;
}

static void submit(const char *line) {
    Request *request = calloc(1, sizeof *request);
    sscanf(field(line, "request"), "\"%31[^\"]", request->name);
    append_tokens(request, field(line, "prompt"));
    request->skip_lookup = flag(line, "skip_lookup");
    request->next = requests;
    requests = request;
    done_number(caching ? request->length / hash_block_size : 0);
}

static void allocate(Request *request, const char *line) {
    if (number(line, "new_tokens") <= 0) {
        printf("{\"outcome\":\"Failed\",\"error\":\"ValueError\",\"message\":\"no tokens to allocate for\"");
        return;
    }
    int num_hit = flag(line, "hit") ? request->num_hit : 0;
    int begin = request->computed + num_hit * core.block_size;
    int end = begin + number(line, "new_tokens") + number(line, "lookahead");
    if (flag(line, "gate") && end < request->length) end = request->length;
    if (end > max_model_len) end = max_model_len;
    int added = core_grow(&core, request->table, request->num_table, request->hit, num_hit, end);
    if (added < 0) {
        printf("{\"outcome\":\"Refused\"");
        return;
    }
    request->num_table += num_hit + added;
    request->computed = begin;
    request->scheduled = number(line, "new_tokens");
    done_blocks(&request->table[request->num_table - added], added);
}

static void advance(Request *request, const char *line) {
    request->computed += request->scheduled - number(line, "rejected");
    request->scheduled = 0;
    append_tokens(request, field(line, "sampled"));
    int known = request->computed < request->length ? request->computed : request->length; /* drafts: told later */
    if (caching) core_publish(&core, request->table, request->tokens, known);
    done_number(caching ? request->length / hash_block_size : 0);
}

static void release(Request *request) {
    core_release(&core, request->table, request->num_table);
    request->num_table = request->computed = request->scheduled = 0;
}

static void step(const char *line) {
    Request *request = request_of(line);
    if (is(line, "Submit")) {
        submit(line);
    } else if (is(line, "Lookup")) {
        bool usable = caching && !request->skip_lookup;
        request->num_hit = usable ? core_match(&core, request->tokens, request->length, request->hit) : 0;
        printf("{\"outcome\":\"Done\",\"value\":[%d,[", request->num_hit * core.block_size);
        show_blocks(request->hit, request->num_hit);
        printf("]]");
    } else if (is(line, "Allocate")) {
        allocate(request, line);
    } else if (is(line, "Advance")) {
        advance(request, line);
    } else if (is(line, "Reject")) {
        request->computed -= number(line, "count");
        done();
    } else if (is(line, "Preempt")) {
        release(request);
        done();
    } else if (is(line, "Free")) { /* also of a request that nobody knows */
        if (request) release(request), drop(request);
        done();
    } else if (is(line, "ReadTable")) {
        done_blocks(request ? request->table : NULL, request ? request->num_table : 0);
    } else if (is(line, "Reset")) {
        bool idle = core.num_free == core.num_blocks;
        if (idle)
            for (int i = 0; i < core.num_blocks; i++) forget(&core.blocks[i]);
        done_flag(idle);
    } else if (is(line, "StepStart")) {
        done();
    } else {
        printf("{\"outcome\":\"Failed\",\"error\":\"NotImplementedError\",\"message\":\"unknown operation\"");
    }
}

int main(void) {
    puts("{\"protocol\":1,\"name\":\"c-engine\",\"version\":\"0.1\","
         "\"hides\":[\"usage\",\"registered\",\"labels\",\"earliest\",\"num_identities\",\"events\",\"new_block_ids\","
         "\"stats\"],"
         "\"lacks\":[\"hybrids\",\"Shape.eagle\",\"Shape.decode_parallel\",\"Shape.prefill_parallel\",\"Group.window\","
         "\"Group.chunk\",\"Group.sink_len\",\"Group.kind=mla\",\"Group.kind=tq\",\"Group.kind=mamba\","
         "\"Group.kind=cross\",\"Allocate.external\",\"Allocate.encoder_tokens\",\"Allocate.reserved\","
         "\"Submit.adapter\",\"Submit.salt\",\"Submit.items\",\"Submit.embeds\",\"CommonPrefix\",\"Evict\","
         "\"RemoveSkipped\",\"Release\",\"TakeEvents\",\"TakeNewBlockIds\",\"TakeStats\"]}");
    fflush(stdout);
    char *line = NULL;
    for (size_t size = 0; getline(&line, &size, stdin) > 0;) {
        if (strncmp(line, "{\"start\":", 9)) {
            step(line);
            show_state();
        } else if (start(line)) {
            show_state();
        }
        fflush(stdout);
    }
    core_reset(&core);
    while (requests) drop(requests);
    free(line);
    return 0;
}
