"""What others measured and published, as setups that can be priced: records of CSV files in one schema."""
