/* One block holds `cap` entries in the order of their insertion, then a table of 2 * cap indices into them (plus one; 0
 * is empty), probed linearly. Nothing is ever removed, so lookups need no tombstones and iteration is the entry array. */
#include "base/internal.h"

#include <string.h>

struct tn_map_slot {
    uint64_t key;     /* a string's: its hash */
    const char *text; /* NULL: an integer key */
    size_t len;
    void *value;
};

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Folded 64 x 64 -> 128 bit products over 8-byte words; the length goes in last. */
uint64_t tn_hash(const void *data, size_t size, uint64_t seed)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    const unsigned char *at = data;
    uint64_t hash = seed ^ odd, word;
    for (size_t left = size; left > 0;) {
        size_t n = left < 8 ? left : 8;
        word = 0;
        memcpy(&word, at, n);
        hash = fold(hash ^ word, odd);
        hash += word;
        at += n;
        left -= n;
    }
    return tn_hash_u64(hash ^ size * odd);
}

/* Differs from process to process where addresses are randomised, which is enough against prepared collisions. */
static uint64_t map_seed(const tn_map *map)
{
    return TN_KEY(map->arena) ^ (uint64_t)(uintptr_t)&tn_hash;
}

static uint32_t *index_table(const tn_map *map)
{
    return (uint32_t *)(map->slots + map->cap);
}

static bool same_key(const struct tn_map_slot *slot, uint64_t key, const char *text, size_t len)
{
    if (slot->key != key || !slot->text != !text)
        return false;
    return !text || (slot->len == len && !memcmp(slot->text, text, len));
}

/* The index cell where the key is, or the empty one where it would go. cap > 0. */
static uint32_t *probe(const tn_map *map, uint64_t key, const char *text, size_t len)
{
    uint32_t *index = index_table(map);
    size_t mask = 2 * map->cap - 1;
    size_t i = (text ? key : tn_hash_u64(key ^ map_seed(map))) & mask;
    while (index[i] && !same_key(&map->slots[index[i] - 1], key, text, len))
        i = (i + 1) & mask;
    return &index[i];
}

static void grow(tn_map *map)
{
    tn_map grown = {map->arena, NULL, map->len, map->cap ? 2 * map->cap : 8};
    const size_t bytes_each = sizeof(struct tn_map_slot) + 2 * sizeof(uint32_t);
    /* 32-bit indices: a map this large has long run out of memory. */
    grown.slots = tn_alloc_array(map->arena, grown.cap < UINT32_MAX / 2 ? grown.cap : SIZE_MAX, bytes_each);
    for (size_t i = 0; i < map->len; i++) {
        const struct tn_map_slot *slot = &map->slots[i];
        grown.slots[i] = *slot;
        *probe(&grown, slot->key, slot->text, slot->len) = (uint32_t)i + 1;
    }
    *map = grown;
}

static struct tn_map_slot *at(tn_map *map, uint64_t key, const char *text, size_t len)
{
    if (map->cap == 0)
        grow(map);
    uint32_t *cell = probe(map, key, text, len);
    if (*cell)
        return &map->slots[*cell - 1];
    if (map->len == map->cap) {
        grow(map);
        cell = probe(map, key, text, len);
    }
    struct tn_map_slot *slot = &map->slots[map->len++];
    *cell = (uint32_t)map->len;
    slot->key = key;
    slot->len = len;
    if (text) {
        char *copy = tn_alloc(map->arena, len + 1);
        memcpy(copy, text, len);
        slot->text = copy;
    }
    return slot;
}

static void *get(const tn_map *map, uint64_t key, const char *text, size_t len)
{
    if (map->len == 0)
        return NULL;
    uint32_t cell = *probe(map, key, text, len);
    return cell ? map->slots[cell - 1].value : NULL;
}

void **tn_map_at(tn_map *map, uint64_t key)
{
    return &at(map, key, NULL, 0)->value;
}

void *tn_map_get(const tn_map *map, uint64_t key)
{
    return get(map, key, NULL, 0);
}

void **tn_map_at_bytes(tn_map *map, const char *text, size_t len, const char **key)
{
    struct tn_map_slot *slot = at(map, tn_hash(text, len, map_seed(map)), text, len);
    *key = slot->text;
    return &slot->value;
}

void **tn_map_at_str(tn_map *map, const char *key)
{
    const char *copy;
    return tn_map_at_bytes(map, key, strlen(key), &copy);
}

void *tn_map_get_str(const tn_map *map, const char *key)
{
    size_t len = strlen(key);
    return get(map, tn_hash(key, len, map_seed(map)), key, len);
}

uint64_t tn_map_key(const tn_map *map, size_t i)
{
    return map->slots[i].key;
}

const char *tn_map_key_str(const tn_map *map, size_t i)
{
    return map->slots[i].text;
}

void *tn_map_value(const tn_map *map, size_t i)
{
    return map->slots[i].value;
}
