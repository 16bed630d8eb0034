/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The last file of the simulator that is linked; see image.c. */
#include "image.h"

char sim_data_edge[64] = {1};
char sim_bss_edge[64];
