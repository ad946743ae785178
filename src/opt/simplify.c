/* simplify: the table of rules on algebra, data movement, products and control flow, applied until none fits. The rules and
 * their before and after are in algebra.c, movement.c, products.c and control.c; each says how exact it is. */
#include "opt/internal.h"

tn_status opt_simplify(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    static const rule *const sets[] = {opt_control_rules, opt_algebra_rules, opt_movement_rules, opt_product_rules};
    return rw_run(graph, options, "simplify", sets, TN_COUNT(sets), NULL, changed);
}
