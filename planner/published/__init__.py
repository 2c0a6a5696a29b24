"""What others measured and published, as setups that can be priced: rows of CSV files in one schema."""
