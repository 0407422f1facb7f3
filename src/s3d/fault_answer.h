// SPDX-License-Identifier: Apache-2.0
// Faults of a request: whether one fires, and those that are the whole answer.
#pragma once

#include "s3d/request.h"

// Fills in r->fault.
void fault_decide(struct request *r);
// True when the fault is the answer: nothing else is to be done.
bool fault_answers(struct request *r);
