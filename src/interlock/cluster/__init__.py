"""The state table across machines: nodes, their change streams and what lies behind them."""
