"""Targets: the compilers and devices that programs are made for, also where there is no such device."""
