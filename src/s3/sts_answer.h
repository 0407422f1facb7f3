// SPDX-License-Identifier: Apache-2.0
// The XML that STS answers with. Used within s3/ only.
// Source: "AWS Security Token Service API Reference", AssumeRole, "Common errors".
#pragma once

#include "base/buf.h"

enum sts_field {
    STS_ACCESS_KEY,
    STS_SECRET_KEY,
    STS_TOKEN,
    STS_EXPIRATION,
    STS_CODE, // of an error
    STS_MESSAGE,
    STS_FIELDS
};

struct sts_answer {
    struct buf fields[STS_FIELDS]; // empty when not there
};

// -EBADMSG when it is not well-formed, has a DTD or a field of absurd length. To be ended with
// sts_answer_fini in any case.
int sts_answer_parse(struct sts_answer *a, const char *xml, size_t len);
void sts_answer_fini(struct sts_answer *a);
