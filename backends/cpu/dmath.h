/*
 * A few functions in double, made of additions, multiplications and exact library functions only
 * (rint, frexp, ldexp), so that they give the same bits on every processor: libm picks variants by
 * CPU.
 */
#ifndef GGRUN_BACKENDS_CPU_DMATH_H
#define GGRUN_BACKENDS_CPU_DMATH_H

/* Absolute error below 1e-15 for |x| < 2^31; NaN beyond, and for NaN. */
void cpu_sincos(double x, double *sin_x, double *cos_x);
/* x > 0, normal; relative error below 1e-15. */
double cpu_log(double x);
/* |x| < 700; relative error below 1e-15. */
double cpu_exp(double x);

#endif
