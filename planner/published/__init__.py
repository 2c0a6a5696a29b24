"""Measurements that others published, read from CSV files of one schema into setups that can be priced."""
