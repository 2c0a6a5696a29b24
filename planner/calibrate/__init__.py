"""Fits of cost coefficients to measurements that others made; no device is needed.

Tables of kernels and collectives give a device's rates (`device_rates_fit`, with one module for each kind of kernel);
published step times give the coefficients of frameworks and the sustained rates of devices (`published_fit`).
"""
