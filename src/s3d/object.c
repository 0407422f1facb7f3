// SPDX-License-Identifier: Apache-2.0
#include "s3d/object.h"

#include <stdlib.h>
#include <string.h>

struct meta *meta_new(const char *content_type, const char *storage_class, const char *headers)
{
    struct meta *m = xcalloc(1, sizeof(*m));

    m->refs = 1;
    m->content_type = content_type ? xstrdup(content_type) : NULL;
    m->storage_class = storage_class ? xstrdup(storage_class) : NULL;
    m->headers = xstrdup(headers);
    return m;
}

struct meta *meta_ref(struct meta *m)
{
    if (m)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void meta_unref(struct meta *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(m->content_type);
    free(m->storage_class);
    free(m->headers);
    free(m);
}

void object_copy(struct object *to, const struct object *from)
{
    *to = *from;
    meta_ref(to->meta);
    if (to->blob)
        blob_ref(to->blob);
}

void object_fini(struct object *o)
{
    meta_unref(o->meta);
    blob_unref(o->blob);
    *o = (struct object){0};
}

bool object_is_archived(const struct object *o)
{
    const char *class = o->meta ? o->meta->storage_class : NULL;

    return class && (!strcmp(class, "GLACIER") || !strcmp(class, "DEEP_ARCHIVE"));
}

struct piece object_piece(const struct object *o, const struct s3d_table *t, uint64_t off)
{
    uint64_t at;

    if (o->blob)
        return blob_piece(o->blob, off);
    at = (o->start + off) % S3D_TABLE_BYTES;
    return (struct piece){.mem = t->bytes + at,
                          .fd = t->fd,
                          .file_off = at,
                          .len = MIN(S3D_TABLE_BYTES - at, o->size - off)};
}
