#include "backends/cpu/dmath.h"

#include <math.h>

/*
 * x = n pi/2 + r, |r| <= pi/4, with pi/2 in four parts of which three have at most 22 bits: their
 * products with n < 2^31 are exact, and so are the differences (Cody and Waite, "Software Manual
 * for the Elementary Functions", 1980). Then the Taylor series of sin r to r^17 and cos r to r^18.
 */
void cpu_sincos(double x, double *sin_x, double *cos_x)
{
    static const double part[4] = {0x1.921fbp+0, 0x1.5110bp-22, 0x1.184698p-44,
                                   0x1.3198a2e037073p-69};
    double n, r, r2, s, c;
    long long quadrant;

    if (!(fabs(x) < 0x1p31)) {
        *sin_x = *cos_x = NAN;
        return;
    }
    n = rint(x * 0x1.45f306dc9c883p-1); /* 2/pi */
    r = x;
    for (int i = 0; i < 4; i++)
        r -= n * part[i];
    r2 = r * r;
    s = 0;
    for (int i = 16; i >= 2; i -= 2)
        s = (s + 1) * -r2 / (double)(i * (i + 1));
    s = r + r * s;
    c = 0;
    for (int i = 17; i >= 1; i -= 2)
        c = (c + 1) * -r2 / (double)(i * (i + 1));
    c += 1;
    quadrant = (long long)n & 3; /* sin(r + pi/2) = cos r, cos(r + pi/2) = -sin r, and again */
    *sin_x = quadrant & 1 ? c : s;
    *cos_x = quadrant & 1 ? s : c;
    if (quadrant >= 2)
        *sin_x = -*sin_x;
    if (quadrant == 1 || quadrant == 2)
        *cos_x = -*cos_x;
}

/*
 * x = 2^e m, m in [sqrt(1/2), sqrt(2)); log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1).
 */
double cpu_log(double x)
{
    int e;
    double m = frexp(x, &e), s, s2, sum = 0;

    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    s = (m - 1) / (m + 1);
    s2 = s * s;
    for (int i = 25; i >= 3; i -= 2)
        sum = (sum + 1.0 / i) * s2;
    return (double)e * 0x1.62e42fefa39efp-1 + (2 * s + 2 * s * sum);
}

/* x = n ln 2 + r; Taylor series to r^15. */
double cpu_exp(double x)
{
    double n = rint(x * 0x1.71547652b82fep+0), r, p = 0;

    r = x - n * 0x1.62e42feep-1; /* upper 32 bits of ln 2: exact */
    r -= n * 0x1.a39ef35793c76p-33;
    for (int i = 15; i >= 1; i--)
        p = (p + 1) * r / i;
    return ldexp(1 + p, (int)n);
}
