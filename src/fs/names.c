// SPDX-License-Identifier: Apache-2.0
#include "fs/names.h"

#include "base/log.h"
#include "base/text.h"
#include "wire/control.h"

#include <string.h>

static const char *const texts[NAME_RULES] = {
    [NAME_OK] = "it can be shown",
    [NAME_EMPTY] = "a component of it is empty",
    [NAME_DOTS] = "a component of it is \".\" or \"..\"",
    [NAME_TOO_LONG] = "a component of it is longer than 255 bytes",
    [NAME_NOT_UTF8] = "it is not UTF-8",
    [NAME_CONTROL] = ("the control directory " OS2G_CONTROL_DIR " takes its place"),
};

enum name_rule name_check(const char *name, size_t len, bool at_root)
{
    if (len == 0)
        return NAME_EMPTY;
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return NAME_DOTS;
    if (len > NAME_MAX_BYTES)
        return NAME_TOO_LONG;
    if (!text_is_utf8(name, len))
        return NAME_NOT_UTF8;
    if (at_root && len == strlen(OS2G_CONTROL_DIR) && !memcmp(name, OS2G_CONTROL_DIR, len))
        return NAME_CONTROL;
    return NAME_OK;
}

const char *name_rule_text(enum name_rule rule)
{
    return texts[rule];
}

// Bytes of a key as a log line can hold them.
static void printable(const char *key, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len && i < 200; i++) {
        uint8_t c = (uint8_t)key[i];

        if (c < 0x20 || c == 0x7f || c == '\\')
            buf_printf(out, "\\x%02x", c);
        else
            buf_add(out, key + i, 1);
    }
    if (!text_is_utf8(buf_str(out), out->len)) {
        buf_reset(out);
        for (size_t i = 0; i < len && i < 200; i++)
            buf_printf(out, key[i] > 0x20 && key[i] < 0x7f ? "%c" : "\\x%02x", (uint8_t)key[i]);
    }
    if (len > 200)
        buf_add_str(out, "...");
}

void hidden_names_add(struct hidden_names *h, enum name_rule rule, const char *key, size_t len)
{
    struct buf text = {0};

    if (h->logged[rule])
        return;
    h->logged[rule] = true;
    printable(key, len, &text);
    log_warning("fs",
                "the key %s is hidden: %s; others like it are not mentioned, only counted. "
                "os2g cat reads it",
                buf_str(&text), name_rule_text(rule));
    buf_free(&text);
}
