"""Thin adapters that put a Monitor into a trainer; at load they import nothing but the standard library."""
