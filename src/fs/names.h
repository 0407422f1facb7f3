// SPDX-License-Identifier: Apache-2.0
// Which keys can be shown as names, one rule for each awkward case:
//
//   "a/"      zero bytes: a marker, it only says that directory a exists
//   "a/"      with bytes: hidden, there is no name for it below a
//   "a//b"    hidden: the component between the slashes is empty
//   "a/./b"   hidden, and "..": a path means something else by them
//   a component of more than 255 bytes: hidden, no system takes such a name
//   not UTF-8: hidden
//   ".os2g/"  at the root: hidden by the control directory
//
// What is hidden is counted, and logged once for each rule. Everything else, '?', '#', '%', '+',
// spaces and newlines too, is a name as it is.
#pragma once

#include "base/base.h"

enum name_rule {
    NAME_OK,
    NAME_EMPTY,
    NAME_DOTS,
    NAME_TOO_LONG,
    NAME_NOT_UTF8,
    NAME_CONTROL,
    NAME_RULES,
};

#define NAME_MAX_BYTES 255
#define KEY_MAX_BYTES  1024 // S3's limit

// name: one component, without slashes. at_root: of the export.
enum name_rule name_check(const char *name, size_t len, bool at_root);
const char *name_rule_text(enum name_rule rule); // why it is hidden

// Which rules have had their line in the log; one for each file system.
struct hidden_names {
    bool logged[NAME_RULES];
};

void hidden_names_add(struct hidden_names *h, enum name_rule rule, const char *key, size_t len);
