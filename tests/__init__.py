"""Tests of everything, as the packages lie."""
