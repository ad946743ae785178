/* What cmocka.h asks to be included before it, and base. */
#ifndef TN_UNIT_H
#define TN_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

#endif
