"""Files of others: their arrays into stores, and stores into their formats."""
